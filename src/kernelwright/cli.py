# SPDX-License-Identifier: Apache-2.0
"""The command line: each verb of the facade, for people (lines, or a live display on a terminal) and ``--json``.

A user's mistake is one message and the exit code of its class; Ctrl-C saves and exits 130; a traceback means
a defect of ours. Only this file prints.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

import kernelwright
from kernelwright import cli_compare, cli_demo, cli_display, cli_environment, cli_judge, cli_models, settings
from kernelwright.errors import BadCommand, KernelwrightError

P = ParamSpec("P")
R = TypeVar("R")
INTERRUPTED = 130
UsageError: Any = typer.BadParameter.__mro__[1]
"""Of click, which newer typers bring along and older ones import."""

# Without rich in the help and in tracebacks typer starts in 0.07 s instead of 1 s.
app = typer.Typer(
    help="A faster PyTorch program, with a proof.",
    epilog="\b\nVariables of the environment that are read:\n"
    + "\n".join(f"  {name}: {text}" for name, text in settings.KNOWN.items()),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Device = Annotated[str | None, typer.Option(help="cpu or cuda:N (default: KERNELWRIGHT_DEVICE, else cpu).")]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Wall time of admission, search and proof (not of measuring a device, once): 90s, 2m, 1h (default: 2m, "
        "and 10m more or --max-minutes for models). Overrun only for what cannot be left out: admission, one candidate "
        "and its proof."
    ),
]
BitsLost = Annotated[float | None, typer.Option(help="Precision that may be lost (default: the task's, 1).")]
Grid = Annotated[float | None, typer.Option(help="kg CO2e per kWh (default: 0.481, world average of 2023).")]
Target = Annotated[str, typer.Argument(help="A task file or folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]


def main() -> int:
    """Entry of the installed command; exits by itself."""
    if "--json" not in sys.argv[1:]:
        app()
        return 0
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        usage = error.ctx.get_usage() if error.ctx is not None else "kernelwright --help"
        wrong = BadCommand("The command line is wrong.", error.format_message(), usage, "see --help")
        print(json.dumps({**wrong.to_json(), "exit_code": wrong.exit_code}, indent=1))
        return wrong.exit_code
    return code if isinstance(code, int) else 0


def _guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Errors as one message with their exit code, an interrupt as 130."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KernelwrightError as error:
            if kwargs.get("as_json"):
                print(json.dumps({**error.to_json(), "exit_code": error.exit_code}, indent=1))
            else:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None

    return guarded


def _version(wanted: bool) -> None:
    if wanted:
        print(kernelwright.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """A faster PyTorch program, with a proof."""


@app.command()
@_guarded
def optimize(
    context: typer.Context,
    file: Annotated[str | None, typer.Argument(help="A KernelBench-form .py file or a task folder.")] = None,
    device: Device = None,
    budget: Budget = None,
    out: Annotated[str | None, typer.Option(help="Run folder (default: a new one in ./runs).")] = None,
    start: Annotated[list[str] | None, typer.Option(help="An existing kernel to begin with: .py, .cu or .cpp.")] = None,
    resume: Annotated[str | None, typer.Option(help="Continue this run.")] = None,
    bits_lost: BitsLost = None,
    gradients: Annotated[bool, typer.Option("--gradients", help="Gradients must be right, and fast, too.")] = False,
    contiguous: cli_judge.Contiguous = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the search (default: 0).")] = None,
    proposers: Annotated[
        str | None, typer.Option(help="Of compiler,rewrites,templates (default: all); or none.")
    ] = None,
    grid: Grid = None,
    llm: cli_models.Llm = None,
    base_url: cli_models.BaseUrl = None,
    recipe: cli_models.Recipe = None,
    language: cli_models.Language = None,
    agent: cli_models.Agent = None,
    agent_env: cli_models.AgentEnv = None,
    agent_seconds: cli_models.AgentSeconds = None,
    max_usd: cli_models.MaxUsd = None,
    max_tokens: cli_models.MaxTokens = None,
    max_requests: cli_models.MaxRequests = None,
    max_minutes: cli_models.MaxMinutes = None,
    max_candidates: cli_models.MaxCandidates = None,
    parallel: cli_models.Parallel = None,
    price: cli_models.Price = None,
    words: cli_models.Words = None,
    as_json: AsJson = False,
) -> None:
    """Make a program faster and prove it."""
    if (file is None) == (resume is None):
        raise BadCommand(
            "Say what to optimise.",
            got="both FILE and --resume" if file else "neither FILE nor --resume",
            expected="kernelwright optimize FILE, or kernelwright optimize --resume RUN",
        )
    with cli_display.display(quiet=as_json) as listen, cli_display.terminable():
        if resume is not None:
            result = _resumed(resume, budget, context.params, listen)
        else:
            result = kernelwright.optimize(
                str(file),
                device=device,
                budget=budget,
                out=out,
                start=start or (),
                bits_lost=bits_lost,
                gradients=gradients,
                contiguous=contiguous,
                seed=seed,
                proposers=settings.names(proposers) if proposers is not None else None,
                guide=cli_models.guide(context.params),
                grid=grid,
                listen=listen,
            )
    _print_result(result, as_json)


def _resumed(run: str, budget: str | None, given: Mapping[str, Any], listen: cli_display.Listen) -> kernelwright.Result:
    allowed = {"context", "file", "resume", "budget", "as_json", *cli_models.LIMITS}
    said = [value for name, value in given.items() if name not in allowed]
    if any(value not in ((), []) for value in said if value is not None and value is not False):  # a 0 is said too
        raise BadCommand(
            "A resumed run keeps its options.", expected="only --budget, --max-... and --json with --resume"
        )
    return kernelwright.resume(run, budget=budget, limits=cli_models.limits(given), listen=listen)


def _print_result(result: kernelwright.Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.to_json(), indent=1))
    else:
        print(result)
        if result.models is not None:
            print(f"  {cli_models.cost_line(result.models)}")
        tried = f"{result.tried} trial" if result.tried == 1 else f"{result.tried} trials"
        print(f"  {result.run} ({tried}, {result.seconds:.0f} s{_proof_took(result)})")
    if result.status == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _proof_took(result: kernelwright.Result) -> str:
    proof = result.spent.get("proof")
    return "" if proof is None else f", {proof:.0f} s of them for the proof"


@app.command()
@_guarded
def report(run: Annotated[str, typer.Argument(help="A run folder.")], as_json: AsJson = False) -> None:
    """Write report.html of a run again."""
    path = kernelwright.report(run)
    _show({"report": str(path)}, as_json, lambda: [str(path)])


@app.command()
@_guarded
def runs(
    parent: Annotated[str | None, typer.Argument(help="Folder of runs (default: ./runs).")] = None,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first."""
    found = kernelwright.runs(parent)
    times = cli_display.times
    rows = [(item["run"], item["task"], item["device"], item["status"], times(item["speedup"])) for item in found]
    _show(found, as_json, lambda: cli_judge.table(("run", "task", "device", "status", "speedup"), rows) or ["no runs"])


@app.command()
@_guarded
def machine(
    device: Device = None,
    html: Annotated[str | None, typer.Option(help="Also draw staircase and roofline into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a device (once; then from the cache)."""
    found = kernelwright.measure_machine(device, html=html, say=_teller(as_json))
    rows = [
        (fact.name, "-" if fact.value is None else f"{fact.value:.4g}", fact.unit, fact.note) for fact in found.facts
    ]
    head = [f"{found.name} ({found.device}), fingerprint {found.fingerprint}", *filter(None, [found.unsteady()])]
    _show(kernelwright.to_data(found), as_json, lambda: head + cli_judge.table(("fact", "value", "unit", "note"), rows))


@app.command()
@_guarded
def limits(file: Target, device: Device = None, grid: Grid = None, as_json: AsJson = False) -> None:
    """Speed-of-light bounds of a task on a device."""
    reply = kernelwright.measure_limits(file, device=device, grid=grid, say=_teller(as_json))
    _show(reply, as_json, lambda: [str(reply["text"]).rstrip()])


@app.command()
@_guarded
def profile(
    candidate: Annotated[str, typer.Argument(help="The replacement: .py, .cu or .cpp.")],
    task: Annotated[str, typer.Option(help="The task it replaces.")],
    parent: Annotated[str | None, typer.Option(help="The program it was made from: say what changed since.")] = None,
    device: Device = None,
    grid: Grid = None,
    as_json: AsJson = False,
) -> None:
    """What limits one candidate, and the edits the evidence supports."""
    say = _teller(as_json)
    reply = kernelwright.profile(candidate, task, parent=parent, device=device, grid=grid, say=say)
    _show(reply, as_json, lambda: [str(reply["text"]).rstrip()])


def _show(data: object, as_json: bool, lines: Callable[[], list[str]]) -> None:
    print(json.dumps(data, indent=1) if as_json else "\n".join(lines()))


def _teller(as_json: bool) -> Callable[[str], None]:
    """What prints progress: on standard error, so that a table can be piped; beside JSON only to a terminal."""
    quiet = as_json and not sys.stderr.isatty()
    return (lambda text: None) if quiet else functools.partial(typer.echo, err=True)


cli_judge.register(app, _guarded, _show, _teller)
cli_models.register(app, _guarded, _show)
cli_compare.register(app, _guarded, _show)
cli_demo.register(app, _guarded, _show)
cli_environment.register(app, _guarded, _show, _teller)

if __name__ == "__main__":
    main()
