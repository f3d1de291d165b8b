# SPDX-License-Identifier: Apache-2.0
"""A file that holds a replacement (Python, CUDA C++ or C++) to a Candidate; it is read, never run."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from kernelwright import kinds
from kernelwright.candidate import Candidate
from kernelwright.errors import CandidateError
from kernelwright.load.raw import wrap
from kernelwright.load.source import classes, imported_modules, text_of, top_level_names, unreachable
from kernelwright.task import Task

ENDINGS = (".py", ".cpp", ".cu")
_OURS = {"torch", "numpy", "triton", "kernelwright", "sitecustomize", "usercustomize", "conftest"}
TAKEN = sys.stdlib_module_names | _OURS
"""Names of modules that a candidate's file would stand in for."""


@kinds.checked
def load_candidate(path: str | Path, task: Task, proposer: str = "start") -> Candidate:
    """The candidate at ``path`` for ``task``.

    ``.py``: a class ``ModelNew`` (or one named like the task's entry) with the reference's constructor and
    state_dict; a ``NAME.cpp`` or ``NAME.cu`` beside it whose ``NAME.so`` it mentions travels along, with
    the ``NAME.so.json`` that says for which machine an exported one was built.
    ``.cpp`` and ``.cu``: one ``extern "C"`` function; ``load/raw.py`` states the rule for its parameters.
    Raises CandidateError.
    """
    place = Path(path).expanduser()
    missing = unreachable(place)
    if not missing and place.is_dir() and (place / "optimized.py").is_file():
        place = place / "optimized.py"
    if missing or not place.is_file() or place.suffix not in ENDINGS:
        there = bool(str(path)) and not missing and place.exists()
        raise CandidateError(
            "That is no candidate." if there else "There is no candidate.",
            got=missing or (f"{place}{', a folder' * place.is_dir()}" if str(path) else "an empty path"),
            expected="a file ending in " + ", ".join(ENDINGS),
            what_next="name the file of the kernel, with its language's ending" if there else "check the path",
        )
    text = _text(place)
    if place.suffix == ".py":
        return _python(place, text, task, proposer)
    plain = place.with_name(_plain(place.name))
    return Candidate(
        task=task.digest(),
        language="cuda" if place.suffix == ".cu" else "cpp",
        entry="optimized.py::ModelNew",
        sources=tuple(sorted([("optimized.py", wrap(task, plain, text)), (plain.name, text)])),
        proposer=proposer,
        note=f"{place.name} as given",
    )


def _plain(name: str) -> str:
    """A file's name as one that the judge takes for a source, whatever spaces and letters the user's has; a kernel in
    ``triton.py`` must not be what ``import triton`` finds."""
    plain = re.sub(r"^[^A-Za-z0-9_]|[^A-Za-z0-9_.-]", "_", name)
    return f"its_{plain}" if plain.partition(".")[0] in TAKEN else plain


def _text(place: Path) -> str:
    try:
        return text_of(place) if place.suffix == ".py" else place.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        got = f"{place}: {error}"
        raise CandidateError("The candidate cannot be read.", got=got, expected="a text file") from error


def _python(place: Path, text: str, task: Task, proposer: str) -> Candidate:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise CandidateError(f"{place} is not valid Python.", got=line, expected="a file that imports") from error
    found = classes(text)
    # ModelNew may be another name of a class; one of the reference's name may be imported from it.
    wanted = ["ModelNew"] if "ModelNew" in top_level_names(text) else [name for name in found if name == task.entry]
    if not wanted:
        raise CandidateError(
            f"{place} defines no replacement.",
            got=", ".join(found) or "no class",
            expected=f"a class ModelNew or {task.entry}",
            what_next="name the class ModelNew; it takes the reference's constructor arguments",
        )
    compiled = [
        file
        for ending in (".cpp", ".cu")
        for file in sorted(place.parent.glob(f"*{ending}"))
        if f"{file.stem}.so" in text or file.name in text
    ]
    language = "torch"
    if compiled:
        language = "cuda" if any(file.suffix == ".cu" for file in compiled) else "cpp"
    elif "triton" in imported_modules(text):
        language = "triton"
    own = _plain(place.name)
    told = [file.with_name(f"{file.stem}.so.json") for file in compiled]
    carried = [*compiled, *(file for file in told if file.is_file())]  # a drop-in runs no library of which none says
    sources = [(own, text)] + [(file.name, _text(file)) for file in carried]
    return Candidate(
        task=task.digest(),
        language=language,
        entry=f"{own}::{wanted[0]}",
        sources=tuple(sorted(sources)),
        proposer=proposer,
        note=f"{place.name} as given",
    )
