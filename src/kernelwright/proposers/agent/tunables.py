# SPDX-License-Identifier: Apache-2.0
"""Numbers a candidate leaves open: found in its comments, and written back into its constants."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence

from kernelwright.candidate import Candidate
from kernelwright.tuning import LONGEST, Feasible, Parameter, Space

# Blanks, not any white space: that would go over a reply's thousands of empty lines once for each of them.
DECLARED = re.compile(r"^[ \t]*(?:#|//)[ \t]*tunable[ \t]+([A-Za-z_]\w*)[ \t]*:(.*)$", re.M)
WHERE = re.compile(r"^[ \t]*(?:#|//)[ \t]*where[ \t](.*)$", re.M)
MOST_VALUES = 32
MOST_LINES = 32
"""Tunables, and constraints, that are read of one candidate: more than a search could ever fit."""
SPELLINGS = (("&&", " and "), ("||", " or "), ("\u2264", "<="), ("\u2265", ">="), ("\u2260", "!="))
"""What people write in place of Python's words."""


def declared_space(candidate: Candidate) -> Space:
    """The space a candidate declares; the value its constant has now comes first, as the default.

    A declaration without a matching constant, or with values that are not numbers, is passed over; of two for one name
    the first counts. So is a constraint that cannot be read, or that the program itself breaks: its own values are the
    one point that is known to work, and a rule they do not keep to was not meant as it reads."""
    parameters: dict[str, Parameter] = {}
    lines: list[str] = []
    for _, text in candidate.sources:
        for name, listed in DECLARED.findall(text):
            if name in parameters or len(parameters) == MOST_LINES:
                continue
            values = [_number(word) for word in re.split(r"[,\s]+", listed) if word][:MOST_VALUES]
            now = _constant(text, name)
            if now is None or not values or any(value is None for value in values):
                continue
            rest = tuple(value for value in values if value is not None and value != now)
            parameters[name] = Parameter(name=name, values=(now, *rest))
        lines += WHERE.findall(text)
    known = tuple(parameters.values())
    constraints = (rule for line in lines for rule in _rules(line) if _keeps_to(known, rule))
    return Space(parameters=known, constraints=tuple(itertools.islice(constraints, MOST_LINES)))


def _rules(line: str) -> list[str]:
    """The constraints of a comment as people mean it; several may be separated by commas. None where it is prose."""
    if len(line) > LONGEST:
        return []
    for spelling, meant in SPELLINGS:
        line = line.replace(spelling, meant)
    line = re.sub(r"!(?!=)", " not ", line).strip().rstrip(".,;").strip()
    try:
        found = ast.parse(line, mode="eval").body
        return [ast.unparse(rule) for rule in found.elts] if isinstance(found, ast.Tuple) else [line]
    except (SyntaxError, ValueError, RecursionError):
        return []


def _keeps_to(parameters: Sequence[Parameter], rule: str) -> bool:
    """Whether a constraint is one over these parameters, and their first values keep to it."""
    try:
        space = Feasible(Space(parameters=tuple(parameters), constraints=(rule,)))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return space.allows({parameter.name: parameter.values[0] for parameter in parameters})


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
        rf"^([ \t]*#[ \t]*define[ \t]+{name}[ \t]+)([-\w.]+)",
        rf"^([ \t]*(?:static\s+)?constexpr\s+[\w:]+\s+{name}\s*=\s*)([-\w.]+)",
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
            number = float(word)
        except ValueError:
            return None
        return number if math.isfinite(number) else None
