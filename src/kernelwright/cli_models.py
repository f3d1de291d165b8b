# SPDX-License-Identifier: Apache-2.0
"""Options and verbs of the command line that have to do with models: asking them, replaying, learning, exporting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

import kernelwright
from kernelwright import settings
from kernelwright.errors import BadCommand

Words = Annotated[str | None, typer.Option(help="File that says in words what to write.")]
Llm = Annotated[
    list[str] | None,
    typer.Option(help="PROVIDER:MODEL to ask for candidates (openai, anthropic, google, local); may be repeated."),
]
BaseUrl = Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server: http://host:port/v1.")]
Recipe = Annotated[
    str | None, typer.Option(help="Published method to follow; kernelwright recipes lists them (default: best).")
]
Language = Annotated[
    str | None,
    typer.Option(help="Ask for triton, cpp, cuda or torch (default: the recipe's, else cpp on cpu, triton on cuda)."),
]
Agent = Annotated[str | None, typer.Option(help="Command that reads TASK.md in its folder and leaves kernel.py.")]
AgentEnv = Annotated[str | None, typer.Option(help="Comma-separated variables the agent command gets too.")]
AgentSeconds = Annotated[float | None, typer.Option(help="After so long an agent command is killed (default: 900).")]
MaxUsd = Annotated[float | None, typer.Option(help="Dollars models may cost; needs models with a known price.")]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens models may take, in and out.")]
MaxRequests = Annotated[int | None, typer.Option(help="Requests to models, failed ones included.")]
MaxMinutes = Annotated[float | None, typer.Option(help="Minutes for the models.")]
MaxCandidates = Annotated[int | None, typer.Option(help="Candidates to ask for (default: 40).")]
Price = Annotated[str | None, typer.Option(help="IN,OUT: dollars per million tokens, where a price is not known.")]
Parallel = Annotated[int | None, typer.Option(help="Requests in flight at once (default: 2).")]

LIMITS = ("max_usd", "max_tokens", "max_requests", "max_minutes", "max_candidates")
FIELDS = ("base_url", "recipe", "language", "agent", "agent_seconds", "parallel", *LIMITS)

Show = Callable[[object, bool, Callable[[], list[str]]], None]
Guarded = Callable[[Callable[..., None]], Callable[..., None]]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]


def guide(given: Mapping[str, Any]) -> kernelwright.Guide | None:
    """The Guide in a command's options, or None where no model is asked. Raises BadCommand."""
    chosen = {name: given[name] for name in FIELDS if given.get(name) is not None}
    if not given.get("llm") and not given.get("agent"):
        odd = [*chosen, *(name for name in ("words", "price", "agent_env") if given.get(name))]
        if odd:
            raise BadCommand(
                "These options are for models, and no model is asked.",
                got=", ".join(f"--{name.replace('_', '-')}" for name in odd),
                expected="--llm PROVIDER:MODEL or --agent COMMAND beside them",
            )
        return None
    return kernelwright.Guide(
        llm=tuple(given.get("llm") or ()),
        agent_env=settings.names(given.get("agent_env") or ""),
        words=_words(given.get("words")),
        price=_price(given.get("price")),
        **chosen,
    ).checked()


def _price(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in settings.names(text or ""))
    except ValueError as error:
        raise BadCommand("That is no price.", got=str(text), expected="IN,OUT: dollars per million tokens") from error


def limits(given: Mapping[str, Any]) -> dict[str, float | int]:
    """The limits among a command's options."""
    return {name: given[name] for name in LIMITS if given.get(name) is not None}


def cost_line(models: Mapping[str, Any]) -> str:
    """What the models cost, for a person: an unknown price says so."""
    usd = "price unknown" if models["usd"] is None else f"{models['usd']:.4f} USD"
    tokens = "tokens unknown" if models["tokens"] is None else f"{models['tokens']} tokens"
    text = f"models: {models['requests']} requests, {tokens}, {usd}"
    each = models.get("usd_per_verified")
    if models.get("verified") is not None:
        text += f"; {models['verified']} verified" + (f", {each:.4f} USD each" if each is not None else "")
    died = (models.get("tally") or {}).get("died", {})
    return text + ("; ended at: " + ", ".join(f"{k} {v['count']}" for k, v in died.items()) if died else "")


def register(app: typer.Typer, guarded: Guarded, show: Show) -> None:
    """Add the verbs to ``app``; ``guarded`` turns errors into exit codes, ``show`` prints."""

    @app.command()
    @guarded
    def replay(run: Annotated[str, typer.Argument(help="A run folder.")], as_json: AsJson = False) -> None:
        """Repeat a run's model-driven search from its record, no model, no device; say what differs, if anything."""
        found = kernelwright.replay(run)
        show(found, as_json, lambda: [found["text"]])
        if not found["identical"]:
            raise typer.Exit(1)

    @app.command()
    @guarded
    def recipes(as_json: AsJson = False) -> None:
        """List the published methods that --recipe takes, and where each departs from its paper."""
        found = kernelwright.list_recipes()
        show(found, as_json, lambda: [line for row in found for line in _recipe_lines(row)])

    @app.command()
    @guarded
    def knowledge(
        action: Annotated[str, typer.Argument(help="list, export, import or learn.")] = "list",
        target: Annotated[str, typer.Argument(help="Words to look for, a .jsonl file, or a run folder.")] = "",
        as_json: AsJson = False,
    ) -> None:
        """Measured effects of edits: list them, move them between machines, or learn from a run."""
        if action == "list":
            found = kernelwright.list_knowledge(target)
            show(found, as_json, lambda: [row["line"] for row in found] or ["nothing is known yet"])
            return
        verbs = {"export": kernelwright.export_knowledge, "import": kernelwright.import_knowledge}
        verb = {**verbs, "learn": kernelwright.learn}.get(action)
        if verb is None or not target:
            raise BadCommand("Say what to do with the knowledge.", got=action, expected="list [WORDS], export FILE, "
                             "import FILE or learn RUN")  # fmt: skip
        count = verb(target)
        show({"action": action, "target": target, "effects": count}, as_json, lambda: [f"{action}: {count} effects"])

    @app.command("export-data")
    @guarded
    def export_data(
        runs: Annotated[list[str], typer.Argument(help="Run folders.")],
        out: Annotated[str, typer.Option(help="Folder for the records and their data card.")],
        level: Annotated[str, typer.Option(help="Least proof: precise or coarse.")] = "precise",
        as_json: AsJson = False,
    ) -> None:
        """Write proved replies as records for supervised and preference training."""
        if level not in ("precise", "coarse"):
            raise BadCommand("There is no such level.", got=level, expected="precise or coarse")
        found = kernelwright.export_data(runs, out, level=level)
        show(found, as_json, lambda: [f"{key}: {value}" for key, value in found.items()])


def _recipe_lines(row: Mapping[str, Any]) -> list[str]:
    roles = ", ".join(row["roles"])
    return [f"{row['name']}: {row['paper']}", f"  {row['strategy']}; {roles}", f"  departs: {row['departs']}"]


def _words(path: str | None) -> str:
    if path is None:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadCommand("The words cannot be read.", got=str(error), expected="a text file") from error
    if not text:
        raise BadCommand("The file of words is empty.", got=path)
    return text
