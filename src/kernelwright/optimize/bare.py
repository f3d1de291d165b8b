# SPDX-License-Identifier: Apache-2.0
"""Source text that is no candidate yet: shown to models as what to begin with, never judged itself."""

from __future__ import annotations

from pathlib import Path

from kernelwright.candidate import Candidate
from kernelwright.task import Task

REFERENCE = "reference"
"""Who proposed it."""
LANGUAGES = {".cu": "cuda", ".cpp": "cpp", ".py": "torch"}


def bare_source(path: str, task: Task) -> Candidate | None:
    """The text of a file as a candidate without an entry; None where there is no text to show."""
    place = Path(path).expanduser()
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if place.suffix not in LANGUAGES or not text.strip():
        return None
    language = "triton" if "import triton" in text else LANGUAGES[place.suffix]
    return Candidate(
        task=task.digest(), language=language, entry="", sources=((place.name, text),), proposer="start",
        note=f"{place.name} as given, without an interface",
    )  # fmt: skip


def as_source(task: Task) -> Candidate:
    """The reference as a program to translate."""
    return Candidate(
        task=task.digest(), language="torch", entry="", sources=(("reference.py", task.reference),),
        proposer=REFERENCE, note="the reference",
    )  # fmt: skip


def is_bare(candidate: Candidate) -> bool:
    """Whether there is nothing to judge."""
    return not candidate.entry
