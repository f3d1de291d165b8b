# SPDX-License-Identifier: Apache-2.0
"""A proposed replacement: what it is and where it came from, never how it fared."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright import wire

LANGUAGES = ("torch", "triton", "cpp", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Source files and how to enter them.

    ``entry`` names a Python file of ``sources`` and an ``nn.Module`` class in it (``optimized.py::ModelNew``),
    constructed with the reference's init arguments and loaded with its ``state_dict``. A source ``NAME.cpp`` or
    ``NAME.cu`` is compiled to ``NAME.so`` beside it before the Python file is loaded. Any file may be absent of
    the others: a candidate in plain torch has one source.
    """

    task: str
    """Digest of the task it answers."""
    language: str
    """One of LANGUAGES."""
    entry: str
    sources: tuple[tuple[str, str], ...]
    """(relative path, text), sorted by path."""
    tunables: tuple[tuple[str, int | float | str | bool], ...] = ()
    """The parameter values chosen, for the record; they are already rendered into ``sources``."""
    proposer: str
    """Who proposed it: ``templates.rowwise``, ``compiler``, ``agent:coder``, ``start`` ..."""
    note: str = ""
    """One line for a person: what this candidate does."""
    parent: str = ""
    """Digest of the candidate it was derived from, or empty."""
    prompt: str = ""
    """Digest of the prompt that asked for it, or empty."""

    def digest(self) -> str:
        """Identity by content: two candidates with equal sources are one, whoever proposed them."""
        return wire.digest(self.task, self.language, self.entry, self.sources)
