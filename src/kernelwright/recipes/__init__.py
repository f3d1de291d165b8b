# SPDX-License-Identifier: Apache-2.0
"""Published methods as rows of ``recipes.toml``; adding the next paper takes a row and at most one small role."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import BadCommand
from kernelwright.search import Beam, BestOfN, Chain, Contrast, Evolution, MapElites, Mcts, Strategy

FILE = Path(__file__).with_name("recipes.toml")
ROLES = (
    "coder", "adviser", "planner", "verifier", "tester", "critic", "summariser", "gradient", "translator", "race",
)  # fmt: skip
SHOWS = ("diagnosis", "change")
ADVISED = ("slow", "wrong", "broken")
"""What an adviser may be asked about: a correct program, one that ran and was refused, one that did not get to run."""
CELLS = ("memory", "tensor", "fusion", "parallel")
"""Axes of MAP-Elites: compiled facts of a candidate (see ``optimize/traits.py``)."""
STRATEGIES: Mapping[str, type] = {
    "best-of-n": BestOfN,
    "chain": Chain,
    "beam": Beam,
    "mcts": Mcts,
    "map-elites": MapElites,
    "evolution": Evolution,
    "contrast": Contrast,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One method as choices."""

    name: str
    paper: str
    departs: str
    """Where the row differs from its paper, and why."""
    strategy: str
    options: tuple[tuple[str, int | float | bool], ...]
    roles: tuple[str, ...]
    shows: tuple[str, ...]
    """What an improving coder sees besides the program: ``diagnosis``, ``change``."""
    advised: tuple[str, ...]
    """Of ``ADVISED``, where there is an adviser; other programs go to the coder with their error alone."""
    thoughts: int
    """Designs to state before writing a first program; 0: none."""
    knowledge: int
    """Measured effects shown per request; 0: none."""
    tuning: int
    """Coarse trials spent on the declared tunables of each new structure; 0: its defaults stand."""
    language: str
    """Language asked for; empty: Triton on CUDA, C++ on CPU."""
    sanitize: str
    """``thread``: C++ candidates run under the sanitizers before they are timed; a report is the repair request."""

    def start(self, candidates: int, seed: int) -> Strategy:
        """The strategy with room for so many candidates."""
        options: dict[str, object] = dict(self.options)
        if self.strategy == "map-elites":
            options["axes"] = CELLS
        made: Strategy = STRATEGIES[self.strategy](candidates, seed, **options)
        return made


def load(path: Path = FILE) -> dict[str, Recipe]:
    """Every recipe by name. Raises ``BadCommand`` naming the row and the key that is wrong."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: _recipe(name, row) for name, row in rows.items()}


def find(name: str, path: Path = FILE) -> Recipe:
    """One recipe. Raises ``BadCommand`` with the known names."""
    known = load(path)
    if name not in known:
        raise BadCommand("There is no such recipe.", got=name, expected="one of " + ", ".join(known))
    return known[name]


def _recipe(name: str, row: dict[str, object]) -> Recipe:
    known = {"paper", "departs", "strategy", "options", "roles", "shows", "thoughts", "knowledge", "tuning"}
    odd = sorted(set(row) - known - {"language", "sanitize", "advised"})
    missing = sorted({"paper", "departs", "strategy", "roles"} - set(row))
    if odd or missing:
        raise _wrong(name, f"unknown {odd}, missing {missing}", f"keys {', '.join(sorted(known))}")
    roles, shows = _words(row.get("roles", [])), _words(row.get("shows", []))
    advised = _words(row.get("advised", ["slow", "wrong"])) if "adviser" in roles else ()
    chosen = ((roles, ROLES), (shows, SHOWS), (advised, ADVISED), ((str(row["strategy"]),), tuple(STRATEGIES)))
    for given, allowed in chosen:
        unknown = [word for word in given if word not in allowed]
        if unknown:
            raise _wrong(name, ", ".join(unknown), "some of " + ", ".join(allowed))
    options = row.get("options", {})
    made = Recipe(
        name=name,
        paper=str(row["paper"]),
        departs=str(row["departs"]),
        strategy=str(row["strategy"]),
        options=tuple(options.items()) if isinstance(options, dict) else (),
        roles=roles,
        shows=shows,
        advised=advised,
        thoughts=_count(row.get("thoughts")),
        knowledge=_count(row.get("knowledge")),
        tuning=_count(row.get("tuning")),
        language=str(row.get("language", "")),
        sanitize=str(row.get("sanitize", "")),
    )
    try:
        made.start(1, 0)
    except TypeError as error:
        raise _wrong(name, str(error), f"options of strategy {made.strategy}") from error
    return made


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else ()


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _wrong(name: str, got: str, expected: str) -> BadCommand:
    return BadCommand(f"Recipe {name} is not well formed.", got=got, expected=expected)
