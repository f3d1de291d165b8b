# SPDX-License-Identifier: Apache-2.0
"""The winner as files that stand alone: optimized.py, its compiled files, and proof.json.

The exported module imports torch (and triton or ctypes), never this package. It keeps the reference inside and
answers with it outside the input space that the proof covers.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import platform
import pprint
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright.candidate import Candidate
from kernelwright.errors import RunFolderUnwritable
from kernelwright.export.proof import proof, sha256
from kernelwright.export.space import by_vectors, fixed_values, nesting, proven_space
from kernelwright.machine import Machine
from kernelwright.neighbours import write as write_modules
from kernelwright.task import Task
from kernelwright.trial import Timed, Trial

__all__ = ["MODULES", "fixed_values", "proof", "proven_space", "write"]

MODULES = "task_modules"
"""The folder beside optimized.py for modules that the reference imports, byte for byte as they were."""
COMPILED_SUFFIXES = (".cpp", ".cu")
# Instruction sets a compiler may use under -march=native; the rest of the flags line says nothing about binaries.
_INSTRUCTION_SETS = re.compile(
    r"(avx|sse|ssse|fma|f16c|bmi|abm|popcnt|movbe|adx|aes|vaes|pclmul|vpclmul|sha|gfni|amx|lzcnt|asimd|sve|neon|fp16|bf16|i8mm)\w*"
)
# Words in a reference after which train() and eval() may differ; anything imported from elsewhere may as well.
_MODE_WORDS = re.compile(
    r"drop_?out|batch_?norm|instance_?norm|spectral|training|rrelu|attention|transformer|lstm|gru|rnn", re.I
)
_PLAIN_IMPORTS = {"torch", "math", "typing", "__future__", "numpy", "collections", "functools", "dataclasses"}


def write(
    run_dir: Path,
    task: Task,
    trial: Trial,
    *,
    cases: Sequence[Mapping[str, Any]],
    built: Path | None = None,
    commands: Mapping[str, Sequence[str]] | None = None,
    machine: Machine | None = None,
    energy: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``optimized.py`` (+ sources and compiled files beside it) and ``proof.json``; returns the former's path.

    ``cases``: what the judge says of each judged case: ``name``, ``inputs`` and ``state``, lists of leaves
    (``shape`` and ``dtype``, or ``value``). ``built``: the folder holding the compiled files of the candidate.
    ``commands``: source name to compile command with ``{source}`` and ``{output}``; without one the file cannot
    be rebuilt elsewhere. Raises ValueError for a trial without a proof and RunFolderUnwritable for a bad folder.
    """
    evidence = proof(task, trial, cases, machine, energy)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        compiled = _place_files(run_dir, trial.candidate, built, commands or {})
        if task.beside:
            write_modules(task.beside, run_dir / MODULES)
        text = _render(task, trial, cases, compiled, machine)
        _replace(run_dir / "optimized.py", text)
        names = ["optimized.py", *(entry["source"] for entry in compiled.values()), *compiled]
        there = [run_dir / name for name in names if (run_dir / name).is_file()]
        evidence["optimized"] = {
            path.relative_to(run_dir).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in there
        }
        _replace(run_dir / "proof.json", json.dumps(evidence, indent=1) + "\n")
    except OSError as error:
        raise RunFolderUnwritable(
            f"The run folder {run_dir} cannot be written.",
            got=str(error),
            expected="a folder on a disk with free space",
            what_next="free space, then run again with --resume",
        ) from error
    return run_dir / "optimized.py"


def _place_files(
    run_dir: Path,
    candidate: Candidate,
    built: Path | None,
    commands: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, Any]]:
    """Copy everything but the entry file next to optimized.py; describe each compiled file."""
    entry_file = candidate.entry.partition("::")[0]
    compiled: dict[str, dict[str, Any]] = {}
    features = _cpu_features()
    for name, text in candidate.sources:
        if name == entry_file:
            continue
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        _replace(run_dir / name, text)
        if not name.endswith(COMPILED_SUFFIXES):
            continue
        binary = str(Path(name).with_suffix(".so"))
        compiled[binary] = {
            "source": name,
            "sha256": sha256(text),
            "command": list(commands.get(name, ())),
            "watched": features,
        }
        if built is not None and (built / binary).is_file():
            shutil.copyfile(built / binary, run_dir / binary)
            record: dict[str, Any] = {"machine": platform.machine(), "features": features}
            target = re.search(r"\bsm_(\d+)(\d)[a-z]?\b", " ".join(commands.get(name, ())))
            if target is not None:
                record["capability"] = [int(target[1]), int(target[2])]
            _replace(run_dir / f"{binary}.json", json.dumps(record) + "\n")
    return compiled


def _render(
    task: Task,
    trial: Trial,
    cases: Sequence[Mapping[str, Any]],
    compiled: Mapping[str, Mapping[str, Any]],
    machine: Machine | None,
) -> str:
    candidate, contract = trial.candidate, task.contract
    entry_file, _, entry_class = candidate.entry.partition("::")
    space = proven_space(cases)
    device = (machine.device if machine else _device_kind(candidate)).partition(":")[0]
    space |= {
        "layouts": list(contract.layouts),
        "vectors": by_vectors(_proved(trial)),
        "gradients": contract.gradients,
        "autocast": contract.autocast,
        "training": contract.training,
        "mode_matters": mode_matters(task.reference),
        "expanded": any("expanded" in leaf for leaf in space["inputs"]),
        "bound": any("triangle" in leaf or "bond" in leaf for leaf in space["inputs"]),
        "nesting": nesting(cases),
        "nested": any(None is not part for found in nesting(cases) for part in found["tuple"]),
        "row_major": sorted(set.intersection(*(set(case.get("row_major", ())) for case in cases))),
        "device": device,
    }
    stateless = not space["state"]
    values = {
        "SPDX": "Written by kernelwright; the embedded reference keeps its own licence.",
        "TITLE": f"{_plain(task.name)}, optimised.",
        "FACTS": _facts(task, trial, fixed_values(cases)),
        "EXPORTS": repr(["Model", "ModelNew", "get_init_inputs", "get_inputs"] + ["optimized"] * stateless),
        "PROVEN": expression(space),
        "REFERENCE_ENTRY": repr(task.entry),
        "REFERENCE": literal(task.reference),
        "FAST_ENTRY": repr((entry_file, entry_class)),
        "FAST": literal(dict(candidate.sources)[entry_file]),
        "NEIGHBOURS": _template("neighbours") + "\n\n",
        "STAND_IN": _template("stand_in") + "\n\n",
        "BUILDING": _building(compiled) if compiled else "",
        "FOLDER": "_folder_of_compiled_files()" if compiled else "_HERE",
        "IMPORTS": _BESIDE if task.beside else repr(list(task.imports)),
        "FUNCTION": _FUNCTION if stateless else "",
    }
    return re.sub(r"\{\{([A-Z_]+)\}\}", lambda match: values[match[1]], _template("drop_in")).rstrip() + "\n"


def _proved(trial: Trial) -> Timed:
    assert isinstance(trial.outcome, Timed)  # proof() refused everything else
    return trial.outcome


_BESIDE = f'[os.path.join(os.path.dirname(os.path.abspath(__file__)), "{MODULES}")]'


def _template(name: str) -> str:
    return (Path(__file__).parent / f"{name}.py.txt").read_text(encoding="utf-8")


def _building(compiled: Mapping[str, Mapping[str, Any]]) -> str:
    """The part of the file that finds its compiled files, or makes them again."""
    return _template("compiled_files").replace("{{COMPILED}}", expression(dict(compiled))) + "\n\n"


_FUNCTION = """

_instance = []


def optimized(*args, **kwargs):
    \"\"\"The program as a function: it has no weights, so one instance serves every call.\"\"\"
    if not _instance:
        _instance.append(ModelNew(*(get_init_inputs() if get_init_inputs else [])).train(PROVEN["training"]))
    return _instance[0](*args, **kwargs)
"""


def mode_matters(reference: str) -> bool:
    """Whether train() and eval() may differ; judged by its words, so it errs towards yes."""
    try:
        tree = ast.parse(reference)
    except (SyntaxError, ValueError):
        return True
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += ["." * n.level + (n.module or "") for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    foreign = {name.partition(".")[0] for name in names} - _PLAIN_IMPORTS
    return bool(foreign) or _MODE_WORDS.search(reference) is not None


class _Spelled(float):
    """A float whose repr is a Python expression: ``inf`` and ``nan`` alone are names that nobody defined."""

    def __repr__(self) -> str:
        return super().__repr__() if math.isfinite(self) else f'float("{float(self)}")'


def expression(value: Any) -> str:
    """A readable Python expression for plain data, numbers that are not finite included."""
    return pprint.pformat(_spelled(value), width=110, sort_dicts=False)


def _spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_spelled(item) for item in value)
    return _Spelled(value) if type(value) is float else value


def literal(text: str) -> str:
    """A Python expression equal to ``text``; readable lines where that is possible."""
    readable = text.endswith("\n") and not text.startswith("'") and "'''" not in text
    if readable and all(c.isprintable() or c in "\n\t" for c in text):
        return f"r'''{text}'''"
    return repr(text)


def _facts(task: Task, trial: Trial, fixed: str) -> str:
    outcome = _proved(trial)
    lines = [
        f"task       {task.digest()}",
        f"candidate  {trial.candidate.digest()} ({_plain(trial.candidate.proposer)})",
        f"speed      {outcome.speedup:.2f}x the best baseline ({_plain(outcome.best_baseline)}),"
        f" 95 % interval {outcome.speedup_low:.2f} to {outcome.speedup_high:.2f}",
        f"precision  {outcome.proof.bits_lost:.2f} bits lost against eager, oracle {outcome.proof.oracle}",
        f"machine    {trial.machine}",
    ]
    if task.contract.as_drawn:
        places = ", ".join(map(str, task.contract.as_drawn))
        lines.append(f"values     of inputs {places} only as get_inputs draws them: nothing here looks at that")
    if fixed:
        lines.append(f"numbers    {_plain(fixed)}: the reference answers others (a tensor of one number may be any)")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text that can stand in a docstring: printable ASCII without quotes or backslashes."""
    return re.sub(r"[^ -~]|[\\\"{}]", "?", text)[:200]


def _device_kind(candidate: Candidate) -> str:
    return "cuda" if candidate.language in ("triton", "cuda") else "cpu"


def _cpu_features() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return []
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, flags=re.MULTILINE)
    return sorted(flag for flag in found[1].split() if _INSTRUCTION_SETS.fullmatch(flag)) if found else []


def _replace(path: Path, text: str) -> None:
    """Write whole or not at all."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8", errors="surrogatepass")
    os.replace(unfinished, path)
