# SPDX-License-Identifier: Apache-2.0
"""Parameter spaces with integer constraints, and the tuner that walks them (ask and tell, seeded, no torch)."""

from __future__ import annotations

from dataclasses import dataclass

Value = int | float | str | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One tunable with its ordered values; the first is the default."""

    name: str
    values: tuple[int | float | str | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Parameters and the constraints between them, as Python expressions over parameter names (``"BLOCK * VEC <= 4096"``)."""

    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...]
