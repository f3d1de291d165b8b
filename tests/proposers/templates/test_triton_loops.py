# SPDX-License-Identifier: Apache-2.0
"""What a looped row reads again, and where it stores, read off the kernel's text."""

import pathlib
import sys

from kernelwright.proposers.templates import triton_kernels
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Task

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import triton_cases


def looped(reference, early):
    """The text of the only kernel of a reference, row by row in blocks."""
    (fused,) = lower(capture(Task(name="t", form="kernelbench", reference=reference)), on_host=False).regions()
    return triton_kernels.kernel(fused, 0, triton_kernels.LOOP, "", early)


def test_a_sum_that_is_an_output_is_written_first_and_read_back():
    """One tensor comes from L2 in the second pass instead of the two it was made of."""
    first, second = looped(triton_cases.LAYER, True).split("for start in")[1:]
    assert ["p0", "p1"] == [name for name in ("p0", "p1") if f"tl.load({name} + base" in first]
    assert "tl.store(o1" in first
    assert "tl.load(o1 + base" in second
    assert "tl.load(p0 + base" not in second


def test_without_early_outputs_everything_is_written_in_the_last_pass():
    """Writes in an earlier pass push the row out of L2 before it is read again."""
    first, second = looped(triton_cases.LAYER, False).split("for start in")[1:]
    assert "tl.store" not in first
    assert 2 == second.count("tl.store")


def test_an_output_that_memory_rounds_is_not_read_back():
    """bfloat16 holds fewer bits than the registers did."""
    assert "tl.load(o" not in looped(triton_cases.HALF_LAYER, True)


def test_an_index_and_the_element_it_picks_are_asked_for_before_the_row():
    """Two dependent loads after the reductions would leave the memory idle."""
    text = looped(triton_cases.LOSS, False)
    assert text.index("tl.load(p1 + r") < text.index("for start in")
    assert text.index("tl.load(p0 + base + at") < text.index("for start in")
