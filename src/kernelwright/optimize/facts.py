# SPDX-License-Identifier: Apache-2.0
"""Facts about candidates that are no verdict (objects, profiles, races), kept so that prompts can be made again.

facts.jsonl  one line for each fact that was asked for, whatever was found
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernelwright.llm import Recorder, read_record

FACTS = "facts.jsonl"
Found = dict[str, float | str]


class FactBook:
    """What was found out, by kind and candidate; what is in it is never asked for again."""

    def __init__(self, path: Path) -> None:
        self._recorder = Recorder(path)
        self._known: dict[tuple[str, str], Found] = {
            (entry["kind"], entry["candidate"]): entry["facts"] for entry in read_record(path) if "kind" in entry
        }

    def get(self, kind: str, candidate: str) -> Found | None:
        """What is known; None where it was never asked for."""
        return self._known.get((kind, candidate))

    def put(self, kind: str, candidate: str, facts: Mapping[str, float | str]) -> Found:
        """Remember, on disk first."""
        kept = dict(facts)
        self._recorder.write({"kind": kind, "candidate": candidate, "facts": kept})
        self._known[kind, candidate] = kept
        return kept
