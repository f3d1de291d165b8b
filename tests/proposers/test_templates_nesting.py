# SPDX-License-Identifier: Apache-2.0
"""Tensors inside tuples, lists and dicts, in arguments and in results: as they were traced, and nested otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from templates_bench import load, pair, propose, reference
from torch.utils import _pytree as pytree

from kernelwright.proposers.templates import nesting, triton_module, triton_program
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Task

INSIDE = reference(
    "y = torch.softmax(batch['x'] * batch['more'][0], -1) * scale\n"
    "return {'$0$': y, 'most': (y.amax(-1), [torch.tanh(y)], None, '$1$')}",
    "{'x': torch.randn(5, 40), 'more': [torch.rand(5, 40), 2.0]}, torch.rand(40)",
    arguments="batch, scale",
)


def inputs(rows: int = 5) -> tuple[Any, torch.Tensor]:
    """One call's arguments."""
    return {"x": torch.randn(rows, 40), "more": [torch.rand(rows, 40), 2.0]}, torch.rand(40)


@pytest.fixture(scope="module")
def module() -> Any:  # noqa: ANN401 - a generated module
    """The C++ candidate."""
    candidate = propose(INSIDE)
    assert candidate is not None
    return load(candidate)


@pytest.mark.parametrize("rows", [5, 7])
def test_nested_tensors_take_the_fast_path_and_come_back_in_the_same_nesting(module: Any, rows: int) -> None:  # noqa: ANN401
    """Also the leaves that are no tensors, and a key that looks like a mark."""
    old, new = pair(module)
    given = inputs(rows)
    with torch.no_grad():
        expected, got = old(*given), new._kw_run(*new._kw_flat(given))
        assert new._kw_ready(new._kw_flat(given))
        assert pytree.tree_structure(expected) == pytree.tree_structure(new(*given))
    for theirs, mine in zip(pytree.tree_leaves(expected), pytree.tree_leaves(got), strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(mine, theirs)
        else:
            assert theirs == mine


@pytest.mark.parametrize(
    "odd",
    [
        lambda batch, scale: ({"more": batch["more"], "x": batch["x"]}, scale),
        lambda batch, scale: ({**batch, "most": 1}, scale),
        lambda batch, scale: ({**batch, "more": tuple(batch["more"])}, scale),
        lambda batch, scale: ({**batch, "more": [*batch["more"], 1]}, scale),
        lambda batch, scale: (torch.fx.immutable_collections.immutable_dict(batch), scale),
        lambda batch, scale: ({**batch, "more": [batch["more"][0], 3.0]}, scale),
    ],
    ids=["order", "key", "tuple", "longer", "subclass", "number"],
)
def test_another_nesting_runs_the_reference(module: Any, odd: Any) -> None:  # noqa: ANN401
    """The answer is right all the same."""
    old, new = pair(module)
    given = odd(*inputs())
    flat = new._kw_flat(given)
    assert not flat or not new._kw_ready(flat)
    with torch.no_grad():
        expected, got = old(*given), new(*given)
    torch.testing.assert_close(got["$0$"], expected["$0$"])


def test_triton_takes_the_same_arguments_apart(module: Any) -> None:  # noqa: ANN401
    """The file is valid Python whose forward reads the flattened arguments and leaves with those given."""
    found = capture(Task(name="t", form="kernelbench", reference=INSIDE))
    program = lower(found, on_host=False)
    wrapping = triton_module.Wrapping(reference=INSIDE, entry="Model", training=False, init=found.init)
    structure = triton_program.structures(program)[0]
    values = {p.name: p.values[0] for p in structure.space.parameters}
    text = triton_program.source(program, structure.name, values, wrapping)
    compile(text, "optimized.py", "exec")
    assert "args = self._flat(given)" in text and "super().forward(*args" not in text.split("class ModelNew")[1]
    assert "args[0]['more'][0]" in text and "return {'\\x240\\x24': " in text


@pytest.mark.parametrize("value", [{("a", 1): 2}, {1.5: 2}])
def test_keys_without_a_text_of_their_own_are_refused(value: dict[Any, int]) -> None:
    """In arguments and in results."""
    with pytest.raises(nesting.Unreadable):
        nesting.reached(value, "args[0]")
    with pytest.raises(nesting.Unreadable):
        nesting.returned(pytree.tree_structure(value), lambda: "x")
