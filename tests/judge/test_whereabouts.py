# SPDX-License-Identifier: Apache-2.0
"""Where results lie, from outside: aliases that are denied, memory of the judge's, one static buffer, odd strides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.judge import whereabouts
from kernelwright.judge.buffers import CallPlan, Region, TensorSpec, laid_out_oddly
from kernelwright.judge.checks import Checks, Wrong
from kernelwright.judge.inputs import Variant
from kernelwright.judge.program import Program
from kernelwright.judge.slices import ITSELF
from kernelwright.judge.window import Window
from kernelwright.task import Contract

SPEC = TensorSpec.contiguous((8, 16), torch.float32)
DENIED = """
import sys
runner = sys.modules["kernelwright.judge.runner"]
delivered = runner.wires.delivered
runner.wires.delivered = lambda number, took, aliases: delivered(number, took, [])
"""
BUFFERS = """
f = sys._getframe()
while not (type(f.f_locals.get("self")).__name__ == "Runner" and "index" in f.f_locals):
    f = f.f_back
y = f.f_locals["self"].buffers.outputs[f.f_locals["index"]][0]
return torch.mul(x, 2.0, out=y)
"""


def run(program: Callable[..., Program], forward: str, head: str = "", init: str = "") -> Window:
    """One watched window of three calls on sets 2, 0 and 1 of four."""
    made = program(forward, head=head, init=init)
    plan = CallPlan(arguments={"list": [{"t": 0}]}, inputs=(SPEC,), results={"t": 0}, outputs=(SPEC,), sets=4)
    buffers = made.bind(plan)
    for index in range(4):
        buffers.inputs[index][0].fill_(index + 1.0)
    made.watched = True
    return made.window([2, 0, 1])


def test_a_fresh_result_is_nowhere_special(program: Callable[..., Program]) -> None:
    """No alias, no overlap, row-major."""
    found = run(program, "return x * 2").whereabouts
    assert found is not None
    assert ((), frozenset(), "", ((16, 1),)) == (found.aliases, found.shared, found.trespass, found.strides)
    assert [512] * 3 == [result.end - result.start for result in found.results]


def test_outputs_of_one_call_in_one_piece_of_memory_are_seen() -> None:
    """The same tensor twice, or one inside another; not two halves of one, nor what two calls returned."""
    at = whereabouts.Result
    apart = [at(0, 0, 100, 200), at(0, 1, 200, 300), at(1, 0, 100, 200), at(1, 1, 250, 300)]
    assert frozenset() == whereabouts._together(apart)
    assert {(0, 1)} == whereabouts._together([at(0, 1, 100, 200), at(0, 0, 100, 200)])
    assert {(0, 2), (1, 2)} == whereabouts._together([at(0, 2, 0, 900), at(0, 0, 10, 20), at(0, 1, 30, 40)])


def test_an_input_handed_back_is_seen_though_it_is_denied(program: Callable[..., Program]) -> None:
    """As is, and as a view of a part of it: the address lies in that input's region."""
    window = run(program, "return x", DENIED)
    assert ((0, 0),) == window.aliases
    window = run(program, "return x.t().t()", DENIED)
    assert ((0, 0),) == window.aliases


def test_a_result_in_the_judges_own_buffers_is_named(program: Callable[..., Program]) -> None:
    """Pages that are there already are no place for a result."""
    found = run(program, BUFFERS, "import sys").whereabouts
    assert found is not None and found.trespass == "output 0 lies in memory of the judge that is no input of its call"


def test_a_result_that_lies_in_another_calls_input_is_named(program: Callable[..., Program]) -> None:
    """Whoever writes there spoils what the other call reads."""
    spoil = BUFFERS.replace('buffers.outputs[f.f_locals["index"]][0]', "buffers.inputs[3][0]")
    found = run(program, spoil, "import sys").whereabouts
    assert found is not None and "output 0" in found.trespass and found.aliases == ()


def test_one_buffer_for_all_results_is_seen(program: Callable[..., Program]) -> None:
    """The third call overwrites what the first returned; two buffers in turn do so as well."""
    found = run(program, "return torch.mul(x, 2, out=self.y)", init="self.y = torch.empty(8, 16)").whereabouts
    assert found is not None and found.shared == frozenset({0})
    turns = "self.n = self.n ^ 1\nreturn torch.mul(x, 2, out=self.y[self.n])"
    found = run(program, turns, init="self.y = torch.empty(2, 8, 16)\nself.n = 0").whereabouts
    assert found is not None and found.shared == frozenset({0})


def windows(program: Callable[..., Program], forward: str, init: str = "") -> frozenset[int]:
    """Leaves that are overwritten in four windows of one call whose results are alive at once."""
    made = program(forward, init=init)
    plan = CallPlan(arguments={"list": [{"t": 0}]}, inputs=(SPEC,), results={"t": 0}, outputs=(SPEC,), sets=1)
    made.bind(plan).inputs[0][0].fill_(1.0)
    made.watched = True
    found = [made.window([0], keep=number < 3).whereabouts for number in range(4)]
    return whereabouts.overwritten([one for one in found if one is not None])


def test_a_result_that_the_next_window_overwrites_is_seen(program: Callable[..., Program]) -> None:
    """One buffer, or two in turn; a pool that gives out again what nobody holds is as good as an allocator."""
    assert frozenset({0}) == windows(program, "return torch.mul(x, 2, out=self.y)", "self.y = torch.empty(8, 16)")
    turns = "self.n ^= 1\nreturn torch.mul(x, 2, out=self.y[self.n])"
    assert frozenset({0}) == windows(program, turns, "self.y = torch.empty(2, 8, 16)\nself.n = 0")
    pool = (
        "import sys\nfree = [y for y in self.pool if sys.getrefcount(y) == 3]\n"
        "y = free[0] if free else torch.empty(8, 16)\nself.pool += [] if free else [y]\n"
        "return torch.mul(x, 2, out=y)"
    )
    assert frozenset() == windows(program, pool, "self.pool = []")
    assert frozenset() == windows(program, "return x * 2")


def test_strides_are_as_the_program_left_them(program: Callable[..., Program]) -> None:
    """A broadcast row and a transposed copy."""
    found = run(program, "return x.mean(0, keepdim=True).expand(8, 16)").whereabouts
    assert found is not None and found.strides == ((0, 1),)
    found = run(program, "return (x * 2).t().contiguous().t()").whereabouts
    assert found is not None and found.strides == ((1, 8),)


def test_only_row_major_and_the_references_order_are_usual() -> None:
    """Steps over a single element say nothing; an empty result has no order."""
    assert not laid_out_oddly((16, 1), (1, 8), (8, 16))
    assert not laid_out_oddly((1, 8), (1, 8), (8, 16))
    assert laid_out_oddly((1, 8), (16, 1), (8, 16))
    assert laid_out_oddly((0, 1), (16, 1), (8, 16))
    assert not laid_out_oddly((77, 1), (16, 1), (1, 16))
    assert not laid_out_oddly((5, 5), (16, 1), (0, 16))


def test_every_byte_of_an_arena_belongs_to_a_region_or_a_guard(program: Callable[..., Program]) -> None:
    """Set, kind and position of the first and last byte; None right before and after."""
    made = program("return x * 2")
    plan = CallPlan(
        arguments={"list": [{"t": 0}]}, inputs=(SPEC,), results={"t": 0}, outputs=(SPEC,), sets=2,
        gradients=(("input:0", SPEC),), seeds=(0,),
    )  # fmt: skip
    buffers = made.bind(plan)
    kinds = ("input", "output", "gradient", "incoming gradient")
    flat = buffers.arena.tensor
    assert flat is not None
    for number, tensors in enumerate(zip(buffers.inputs, buffers.outputs, buffers.grads, buffers.seeds, strict=True)):
        for kind, tensor in zip(kinds, tensors, strict=True):
            start = tensor[0].data_ptr() - flat.data_ptr()
            assert Region(number, kind, 0) == buffers.locate(start) == buffers.locate(start + 8 * 16 * 4 - 1)
            assert buffers.locate(start - 1) is None and buffers.locate(start + 8 * 16 * 4) is None


TWICE = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
P, N, L = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long
def rows(block, times, kind):
    free = libc.mmap(P(), N(block * times), 3, 0x22, -1, L(0))
    base = libc.mmap(P(free), N(block), 3, 0x10 | 0x20 | kind, -1, L(0))
    for i in range(1, times if kind == 1 else 0):  # an old size of 0 maps shared memory once more
        libc.mremap(P(base), N(0), N(block), 3, P(free + i * block))
    return torch.frombuffer((ctypes.c_char * (block * times)).from_address(free), dtype=torch.float32)
"""


@pytest.mark.parametrize(("kind", "twice"), [(1, True), (2, False)])
def test_rows_that_are_one_piece_of_memory_are_seen(program: Callable[..., Program], kind: int, twice: bool) -> None:
    """Two pages of shared memory, eight times in a row; private pages are each their own."""
    made = program(
        f"y = rows(8192, 8, {kind}).view(16, 1024)\ny.copy_(x.sum(0).expand(16, 1024))\nreturn y", head=TWICE
    )
    spec = TensorSpec.contiguous((16, 1024), "float32")
    plan = CallPlan(arguments={"list": [{"t": 0}]}, inputs=(spec,), results={"t": 0}, outputs=(spec,), sets=1)
    made.bind(plan).inputs[0][0].fill_(1.0)
    made.watched = True
    found = made.window([0]).whereabouts
    assert found is not None and twice is ("mapped twice" in found.trespass)


GIVES = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 1.0
        ctx.save_for_backward(x, y)
        return y
    @staticmethod
    def backward(ctx, d):
        x, y = ctx.saved_tensors
        return {}
"""


@pytest.mark.parametrize(
    ("gives", "aliases", "together"),
    [("d", set(), set()), ("x.detach()", {(1, 0)}, set()), ("y.detach()", set(), {(0, 1)}), ("d * 1.0", set(), set())],
)
def test_a_gradient_may_be_the_incoming_one_and_not_an_input_or_output(
    program: Callable[..., Program], gives: str, aliases: set[tuple[int, int]], together: set[tuple[int, int]]
) -> None:
    """``backward()`` copies what comes in; an input is taken for ``.grad`` as it is, and emptied with it."""
    made = program("return Own.apply(x)", head=GIVES.format(gives))
    plan = CallPlan(
        arguments={"list": [{"t": 0}]}, inputs=(SPEC,), results={"t": 0}, outputs=(SPEC,), sets=1, seeds=(0,),
        gradients=(("input:0", SPEC),), incoming=(SPEC,),
    )  # fmt: skip
    buffers = made.bind(plan)
    buffers.inputs[0][0].fill_(1.0)
    buffers.seeds[0][0].fill_(1.0)
    made.watched = True
    found = made.window([0], grad=True).whereabouts
    assert found is not None and found.trespass == ""
    assert (set(found.aliases), set(found.together)) == (aliases, together)


@pytest.mark.parametrize(("name", "source", "right"), [(ITSELF, 0, True), (ITSELF, 1, True), ("as given", 0, False)])
def test_what_is_handed_on_is_every_input_where_these_are_one_tensor(name: str, source: int, right: bool) -> None:
    """A task that gives its second input back beside a result: called with one tensor for both, that is the first one
    too, and a program that hands it on as well was refused for it."""
    bench = SimpleNamespace(contract=Contract(), eager_aliases=frozenset({(1, 1)}))
    checks: Any = SimpleNamespace(bench=bench, _leaf=lambda point, leaf: f"output {leaf}")
    point: Any = SimpleNamespace(instance=SimpleNamespace(specs=(1, 2)))
    window: Any = SimpleNamespace(whereabouts=None, aliases=((1, source),))
    variant = Variant(name=name, required=True)
    if right:
        Checks._looked_at(checks, window, point, variant)
        window.aliases = ((0, source),)
    with pytest.raises(Wrong, match="shares storage with input 0" if not right else "shares storage"):
        Checks._looked_at(checks, window, point, variant)
