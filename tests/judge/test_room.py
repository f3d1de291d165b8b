# SPDX-License-Identifier: Apache-2.0
"""Tasks that cannot fit are refused before they take the machine's memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from plain_tasks import task

from kernelwright.errors import NotEnoughMemory
from kernelwright.judge import room
from kernelwright.judge.reference import Reference


def test_sizes_are_known_without_allocating() -> None:
    """4 TiB of inputs, two tensors: nobody could make them to count them."""
    made = task("x + y[0]", "[torch.rand(1 << 39), torch.ones(1 << 40, 2, dtype=torch.int8)]", args="x, y")
    assert (1 << 41) + (1 << 41) == room.input_bytes(Reference(made, "cpu"), made.timed_case())


def test_what_cannot_fit_is_refused_with_its_sizes() -> None:
    """The message has what is needed and what there is."""
    made = task("x * 2", "[torch.rand(1 << 40)]")
    with pytest.raises(NotEnoughMemory) as caught:
        room.check(Reference(made, "cpu"), made.timed_case())
    assert caught.value.got.startswith("4100 GiB of inputs, 4100 GiB of outputs, ")
    assert "at least 41000 GiB: 4 times the inputs and 6 times the outputs" == caught.value.expected


def test_outputs_count_where_inputs_alone_would_fit() -> None:
    """Read without data where inputs are large, else as soon as the first call has shown them."""
    free = room.available_bytes() or 0
    length, most = free // 32, 2**29  # more bytes than 2**63 are an error of torch's own
    wide = task(f"x[:, None] + x[None, :{most}]", f"[torch.rand({length})]")
    assert length * min(length, most) * 4 == room.output_bytes(Reference(wide, "cpu"), wide.timed_case())
    with pytest.raises(NotEnoughMemory) as caught:
        room.check(Reference(wide, "cpu"), wide.timed_case())
    assert "times the inputs and 6 times the outputs" in caught.value.expected
    small = Reference(task("x[:, None] + x[None, :]", "[torch.rand(300)]"), "cpu")
    room.check_answers(small.instance(small.task.timed_case()))
    with pytest.raises(NotEnoughMemory, match="of outputs"):
        room.enough(small, 1200, 360_000, 6 * 360_000)


def test_what_a_call_holds_inside_counts_in_float64() -> None:
    """Two vectors in, one number out, and 4 MiB of their products between, once more in float64: 8 MiB are refused."""
    made = task("(x[:, None] * y[None, :]).sum()[None]", "[torch.rand(1024), torch.rand(1024)]", args="x, y")
    instance = Reference(made, "cpu").instance(made.timed_case())
    room.enough_inside(instance, 9 << 20)
    with pytest.raises(NotEnoughMemory) as caught:
        room.enough_inside(instance, 8 << 20)
    assert "does not fit" in str(caught.value) and "predicted to hold 0.00" in caught.value.got


@pytest.mark.parametrize("inputs", ["[torch.rand(3)]", "[torch.rand(int(torch.rand(4).sum().item()) + 1)]"])
def test_what_fits_or_cannot_be_told_passes(inputs: str) -> None:
    """A get_inputs that needs real values is simply run later."""
    made = task("x * 2", inputs)
    room.check(Reference(made, "cpu"), made.timed_case())


def test_what_an_earlier_task_left_is_given_back_before_anything_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gibibyte is free, and 16 once the judge has let go of what it kept."""
    free = [1 << 30]
    monkeypatch.setattr(room, "available_bytes", lambda: free[0])
    monkeypatch.setattr(room.pages, "give_back", lambda: free.__setitem__(0, 1 << 34))
    made = task("x * 2", "torch.rand(1 << 27)")
    assert room.check(Reference(made, "cpu"), made.timed_case()) == 1 << 29
    monkeypatch.setattr(room.pages, "give_back", lambda: None)
    free[0] = 1 << 30
    with pytest.raises(NotEnoughMemory):
        room.check(Reference(made, "cpu"), made.timed_case())


@pytest.mark.parametrize(("kept", "more"), [(0, 75), (20, 55), (60, 50)])
def test_what_was_given_back_and_may_be_taken_again_counts_as_taken(
    monkeypatch: pytest.MonkeyPatch, kept: int, more: int
) -> None:
    """Of 100 bytes free and 40 of address space in use; half of what is free may be had in any case."""
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(room, "available_bytes", lambda: 100)
    monkeypatch.setattr(room, "_status_bytes", lambda field: 40)
    monkeypatch.setattr(room.resource, "getrlimit", lambda which: (1, room.resource.RLIM_INFINITY))
    monkeypatch.setattr(room.resource, "setrlimit", lambda which, limit: limits.append(limit))
    room.hold(kept)
    assert [(40 + more, room.resource.RLIM_INFINITY)] == limits


def test_a_judge_that_takes_too_much_is_told_no_instead_of_killed() -> None:
    """In a process of its own: three quarters of what is free can be had, the whole cannot, and it is named."""
    done = subprocess.run([sys.executable, "-c", HOLDS], capture_output=True, text=True, timeout=120, check=True)
    assert ["within", "NotEnoughMemory"] == done.stdout.split()


HOLDS = """
import torch
from kernelwright.judge import health, room
free = room.available_bytes()
room.hold()
torch.empty(free // 2, dtype=torch.uint8)
print("within")
try:
    torch.empty(free, dtype=torch.uint8)
except RuntimeError as error:
    print(type(health.fault(error)).__name__)
"""
