# SPDX-License-Identifier: Apache-2.0
"""load/slicing.py: what a definition needs comes along; what merely runs stays behind."""

from __future__ import annotations

import pytest

from kernelwright.errors import TaskError
from kernelwright.load.slicing import absolute, needed_source

TEXT = '''"""A training script."""
from __future__ import annotations
import math, os
import torch
from torch.nn import functional as F

SCALE = math.pi
print("side effect")
for step in range(3):
    unused = step

def unrelated():
    return os.getcwd()

def helper(x):
    return F.relu(x) * SCALE

@torch.no_grad()
def wanted(x, bias=SCALE):
    return helper(x) + bias

if __name__ == "__main__":
    wanted(torch.ones(3))
'''


def test_exactly_the_needed_statements_are_kept_in_order() -> None:
    """Decorators, defaults, helpers, constants and imports; no prints, loops or main blocks."""
    expected = [
        "from __future__ import annotations",
        "import math",
        "import torch",
        "from torch.nn import functional as F",
        "SCALE = math.pi",
        "def helper(x):\n    return F.relu(x) * SCALE",
        "@torch.no_grad()\ndef wanted(x, bias=SCALE):\n    return helper(x) + bias",
    ]
    assert expected == needed_source(TEXT, {"wanted"}).split("\n\n")


def test_the_slice_runs_on_its_own() -> None:
    """Executing it prints nothing and defines what was asked for."""
    scope: dict[str, object] = {}
    exec(
        needed_source(
            TEXT.replace("import torch\n", "")
            .replace("@torch.no_grad()\n", "")
            .replace("from torch.nn import functional as F\n", "class F:\n    relu = staticmethod(abs)\n"),
            {"wanted"},
        ),
        scope,
    )
    assert 3.141592653589793 * 3 == scope["wanted"](-2)  # type: ignore[operator]  # a function by construction
    assert "unused" not in scope


def test_every_binding_of_a_name_is_kept() -> None:
    """A default under if, overridden later: both are needed to mean the same."""
    text = "if True:\n    A = 1\nA = 2\ndef f():\n    return A\n"
    assert "if True:\n    A = 1\n\nA = 2\n\ndef f():\n    return A" == needed_source(text, {"f"})


def test_a_name_that_is_not_at_top_level_is_refused() -> None:
    """With its name, and what to do about it."""
    with pytest.raises(TaskError, match="inner(?s:.*)\n  next: move it there"):
        needed_source("def f():\n    def inner(): pass\n", {"inner"})


def test_form_feeds_do_not_shift_lines() -> None:
    """The syntax tree counts line ends only; str.splitlines would take the lines before."""
    assert "A = 3\n\ndef f():\n    return A" == needed_source(
        "x = 1\n\x0c\nA = 3\n\x0c\ndef f():\n    return A\n", {"f"}
    )


def test_relative_imports_are_written_out() -> None:
    """At top level, inside functions, over several lines; one that leads out of the package is refused."""
    text = "from . import a\ndef f():\n    from ..b.c import (\n        d as e,\n    ); return e\nimport x\n"
    wanted = "from p.q import a\ndef f():\n    from p.b.c import d as e; return e\nimport x\n"
    assert wanted == absolute(text, "p.q")
    assert text == absolute(text, "")
    with pytest.raises(ImportError):
        absolute(text, "p")
