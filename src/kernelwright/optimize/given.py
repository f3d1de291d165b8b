# SPDX-License-Identifier: Apache-2.0
"""The kernels a user gives to start from, read and checked before a run begins anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelwright.candidate import Candidate
from kernelwright.errors import CandidateError
from kernelwright.load import load_candidate
from kernelwright.optimize.bare import bare_source
from kernelwright.optimize.result import Options
from kernelwright.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What ``Options.start`` names."""

    kernels: Mapping[str, Candidate]
    """``start/NAME`` to a candidate, in the order given."""
    bare: tuple[Candidate, ...]
    """Texts without an interface, which only models are shown."""
    notes: tuple[tuple[str, str], ...]
    """(sentence, detail) on each of these."""


def read_given(task: Task, options: Options) -> Given:
    """Raises CandidateError for a file that is missing, cannot be read or holds no replacement; where models are asked
    it is enough that there is a text to show them."""
    kernels: dict[str, Candidate] = {}
    bare: list[Candidate] = []
    notes: list[tuple[str, str]] = []
    for path in options.start:
        try:
            found = load_candidate(path, task)
        except CandidateError as error:
            source = bare_source(path, task) if options.guide is not None else None
            if source is None:
                raise
            bare.append(source)
            notes.append((f"{path} is shown to the models only: {error.what}", str(error)))
            continue
        name, number = f"start/{Path(path).name}", 2
        while name in kernels:  # files of one name, from two folders
            name, number = f"start/{Path(path).name}-{number}", number + 1
        kernels[name] = found
    return Given(kernels=kernels, bare=tuple(bare), notes=tuple(notes))


NOTHING = Given(kernels={}, bare=(), notes=())
"""Where no kernel was given."""
