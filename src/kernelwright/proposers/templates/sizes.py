# SPDX-License-Identifier: Apache-2.0
"""Sizes as Python texts over the program's symbols."""

from __future__ import annotations

from collections.abc import Iterable

import sympy


def product(sizes: Iterable[str]) -> str:
    """Python text of a product of sizes."""
    return " * ".join(s if s.isidentifier() or s.isdigit() else f"({s})" for s in sizes) or "1"


def equal(one: str, other: str) -> bool:
    """Whether two sizes are the same number whatever the symbols are."""
    return one == other or sympy.expand(sympy.sympify(one) - sympy.sympify(other)) == 0
