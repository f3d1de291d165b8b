# SPDX-License-Identifier: Apache-2.0
"""Candidate files that carry the reference: its source, then ``ModelNew``, a subclass of it."""

from __future__ import annotations

from kernelwright.candidate import Candidate
from kernelwright.task import Task

FILE = "optimized.py"


def embed(task: Task, body: str, *, header: str, imports: tuple[str, ...] = ("import torch",)) -> str:
    """One Python file: header comment, reference source, the imports ``body`` needs, ``body``.

    ``body`` defines ``class ModelNew(<task.entry>)``: construction, state_dict names and every shape the
    fast path does not take are then the reference's own. The reference comes first so that its
    ``from __future__`` lines stay legal.
    """
    comment = "\n".join(f"# {line}".rstrip() for line in header.splitlines())
    return "\n".join([comment, "", task.reference.strip("\n"), "", "", *imports, "", "", body.strip("\n"), ""])


def torch_candidate(task: Task, source: str, *, proposer: str, note: str, parent: str = "") -> Candidate:
    """A one-file candidate in plain torch."""
    return Candidate(
        task=task.digest(),
        language="torch",
        entry=f"{FILE}::ModelNew",
        sources=((FILE, source),),
        proposer=proposer,
        note=note,
        parent=parent,
    )
