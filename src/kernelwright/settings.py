# SPDX-License-Identifier: Apache-2.0
"""The only reader of the environment: every ``KERNELWRIGHT_*`` variable, typed; a misspelt one is an error.

Keys of language models are held by reference (the name of the variable), never by value, so that a
``Settings`` can be logged, compared and stored without leaking anything.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import BadCommand

PREFIX = "KERNELWRIGHT_"
WORLD_GRID = 0.481
"""kg CO2e per kWh of electricity: the world's average of 2023 (Ember, July 2024)."""

KNOWN: Mapping[str, str] = {
    "KERNELWRIGHT_HOME": "folder of caches: built objects, measured machines (default: XDG_CACHE_HOME/kernelwright)",
    "KERNELWRIGHT_RUNS": "folder in which new runs are made (default: ./runs)",
    "KERNELWRIGHT_DEVICE": "device when --device is not given: cpu or cuda:N (default: cpu)",
    "KERNELWRIGHT_BUDGET": "wall time of one optimisation when --budget is not given: 90s, 2m, 1h (default: 2m)",
    "KERNELWRIGHT_SEED": "seed of the search when --seed is not given (default: 0)",
    "KERNELWRIGHT_PROPOSERS": "comma-separated proposers when --proposers is not given",
    "KERNELWRIGHT_GRID": "kg CO2e per kWh of your electricity when --grid is not given (default: 0.481, world 2023)",
    "KERNELWRIGHT_LLM_KEY_NAME": "name of the variable that holds the key of the language model (not the key)",
}
"""Every variable read here, with one line for ``kernelwright --help`` and the documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says, after defaults."""

    home: Path
    runs: Path
    device: str
    budget_seconds: float
    seed: int
    proposers: tuple[str, ...]
    """Empty: all deterministic ones."""
    grid: float
    """kg CO2e per kWh."""
    llm_key_name: str
    """Name of the variable that holds a key; the value is read at the moment of use by ``secret``."""


def read(environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from ``environment`` (default: the process's). Raises BadCommand for unknown or malformed ones."""
    env = os.environ if environment is None else environment
    unknown = sorted(name for name in env if name.startswith(PREFIX) and name not in KNOWN)
    if unknown:
        raise BadCommand(
            "There is a KERNELWRIGHT_ variable that nothing reads.",
            got=", ".join(unknown),
            expected="one of " + ", ".join(KNOWN),
            what_next="correct the name, or unset it",
        )
    cache = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or "/tmp") / ".cache")
    return Settings(
        home=Path(env.get("KERNELWRIGHT_HOME") or cache / "kernelwright").expanduser(),
        runs=Path(env.get("KERNELWRIGHT_RUNS") or "runs").expanduser(),
        device=device(env.get("KERNELWRIGHT_DEVICE") or "cpu"),
        budget_seconds=seconds(env.get("KERNELWRIGHT_BUDGET") or "2m", "KERNELWRIGHT_BUDGET"),
        seed=_integer("KERNELWRIGHT_SEED", env.get("KERNELWRIGHT_SEED") or "0"),
        proposers=names(env.get("KERNELWRIGHT_PROPOSERS") or ""),
        grid=grid(env.get("KERNELWRIGHT_GRID") or str(WORLD_GRID)),
        llm_key_name=env.get("KERNELWRIGHT_LLM_KEY_NAME") or "",
    )


def secret(name: str, environment: Mapping[str, str] | None = None) -> str:
    """The value of the variable ``name``, read now and kept nowhere. Raises BadCommand when it is unset."""
    env = os.environ if environment is None else environment
    if not env.get(name):
        raise BadCommand(
            "The key of the language model is not set.",
            got=f"no variable {name}",
            expected="a variable that holds the key",
            what_next=f"export {name}=...",
        )
    return env[name]


def first_set(names: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The first of ``names`` that is set, or an empty text: the name, not the value."""
    env = os.environ if environment is None else environment
    return next((name for name in names if env.get(name)), "")


def redacted(text: str, names: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """``text`` with the values of the variables ``names`` replaced by their names (values under 6 letters stay)."""
    env = os.environ if environment is None else environment
    for name in names:
        if len(env.get(name, "")) >= 6:
            text = text.replace(env[name], f"[{name}]")
    return text


LONGEST_S = 30 * 86400.0
"""A budget of more than a month is a slip of the pen."""
MOST_BITS = 64.0
"""No dtype has more bits to lose."""


def seconds(text: str | float, name: str = "the budget") -> float:
    """``90``, ``90s``, ``1.5m`` or ``1h`` as seconds, at most a month. Raises BadCommand, of ``name``, for others
    and zero."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text) if isinstance(text, str) else None
    value = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    value = value if isinstance(text, str) else _number(text)
    if not 0 < value <= LONGEST_S:
        what = f"{name[0].upper()}{name[1:]} is not a length of time."
        raise BadCommand(what, got=repr(text), expected="90s, 2m or 1h, up to 720h")
    return value


def bits(value: float) -> float:
    """Bits of precision that may be lost. Raises BadCommand for less than none, for more than there are, and for nan,
    with which every comparison would pass."""
    if not 0.0 <= _number(value) <= MOST_BITS:
        raise BadCommand("This is no number of bits that may be lost.", got=repr(value), expected="0 to 64, such as 1")
    return float(value)


def seed(value: int) -> int:
    """A whole number of either sign. Raises BadCommand for anything else."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadCommand("The seed is not a whole number.", got=repr(value), expected="0, 1, 2 ...")
    return value


def several(value: object) -> tuple[Any, ...]:
    """One text or path as a tuple of it, and a list as a tuple; a text is no list of letters."""
    return (value,) if isinstance(value, str | os.PathLike) else tuple(value)  # type: ignore[arg-type]  # by its caller


def _number(value: object) -> float:
    """nan for what is no number: it lies in no range."""
    odd = isinstance(value, bool) or not isinstance(value, int | float)
    return math.nan if odd else float(value)  # type: ignore[arg-type]  # just looked


def grid(text: str | float) -> float:
    """kg CO2e per kWh. Raises BadCommand for what is no number, below 0 or above 5 (then it was grams)."""
    try:
        value = float(text) if isinstance(text, str) else _number(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 5.0:
        raise BadCommand("The grid factor is not kg CO2e per kWh.", got=str(text), expected="0 to 5, such as 0.05")
    return value


def device(text: str) -> str:
    """``cpu`` or ``cuda:N`` (``cuda`` means ``cuda:0``). Raises BadCommand for anything else."""
    name = "cuda:0" if text == "cuda" else text
    if name != "cpu" and not re.fullmatch(r"cuda:\d+", name):
        raise BadCommand("There is no such kind of device.", got=repr(text), expected="cpu or cuda:N")
    return name


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list as a tuple without blanks."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadCommand(f"{name} is not a whole number.", got=repr(text), expected="0, 1, 2 ...") from None
