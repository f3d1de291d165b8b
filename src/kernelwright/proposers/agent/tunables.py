# SPDX-License-Identifier: Apache-2.0
"""Numbers a candidate leaves open: found in its comments, and written back into its constants."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from kernelwright.candidate import Candidate
from kernelwright.tuning import Parameter, Space

DECLARED = re.compile(r"^\s*(?:#|//)\s*tunable\s+([A-Za-z_]\w*)\s*:\s*(.+?)\s*$", re.M)
WHERE = re.compile(r"^\s*(?:#|//)\s*where\s+(.+?)\s*$", re.M)
MOST_VALUES = 32


def declared_space(candidate: Candidate) -> Space:
    """The space a candidate declares; the value its constant has now comes first, as the default.

    A declaration without a matching constant, or with values that are not numbers, is passed over."""
    parameters, constraints = [], []
    for _, text in candidate.sources:
        for name, listed in DECLARED.findall(text):
            values = [_number(word) for word in re.split(r"[,\s]+", listed) if word][:MOST_VALUES]
            now = _constant(text, name)
            if now is None or not values or any(value is None for value in values):
                continue
            rest = tuple(value for value in values if value is not None and value != now)
            parameters.append(Parameter(name=name, values=(now, *rest)))
        constraints += WHERE.findall(text)
    names = {parameter.name for parameter in parameters}
    kept = [line for line in constraints if set(re.findall(r"[A-Za-z_]\w*", line)) - {"and", "or", "not"} <= names]
    return Space(parameters=tuple(parameters), constraints=tuple(kept))


def with_values(candidate: Candidate, values: Mapping[str, int | float | str | bool]) -> Candidate:
    """The candidate with its constants set; its tunables record what was chosen."""
    sources = []
    for path, text in candidate.sources:
        for name, value in values.items():
            text = _assign(text, name, value)
        sources.append((path, text))
    chosen = tuple(sorted(values.items()))
    return dataclasses.replace(candidate, sources=tuple(sources), tunables=chosen)


def _patterns(name: str) -> tuple[str, ...]:
    return (
        rf"^({name}\s*(?::\s*[\w.\[\]]+\s*)?=\s*)([-\w.]+)",
        rf"^(\s*#\s*define\s+{name}\s+)([-\w.]+)",
        rf"^(\s*(?:static\s+)?constexpr\s+[\w:]+\s+{name}\s*=\s*)([-\w.]+)",
    )


def _constant(text: str, name: str) -> int | float | None:
    for pattern in _patterns(re.escape(name)):
        found = re.search(pattern, text, flags=re.M)
        if found:
            return _number(found.group(2))
    return None


def _assign(text: str, name: str, value: int | float | str | bool) -> str:
    for pattern in _patterns(re.escape(name)):
        text = re.sub(pattern, lambda match: match.group(1) + str(value), text, count=1, flags=re.M)
    return text


def _number(word: str) -> int | float | None:
    try:
        return int(word)
    except ValueError:
        try:
            return float(word)
        except ValueError:
            return None
