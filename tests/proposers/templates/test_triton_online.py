# SPDX-License-Identifier: Apache-2.0
"""Which pairs of row reductions may share a pass, read off regions written by hand."""

from kernelwright.proposers.templates import triton_online
from kernelwright.proposers.templates.ir import COLUMN, FULL, ROW, SCALAR, Region, Value


def softmax(subtracted):
    """Row maximum, then the sum of exp(x - subtracted)."""
    return Region(
        values=(
            Value(op="input", kind=FULL, index=0),
            Value(op="row_max", args=(0,), kind=ROW),
            Value(op="sub", args=(0, subtracted), kind=FULL),
            Value(op="exp", args=(2,), kind=FULL),
            Value(op="row_sum", args=(3,), kind=ROW),
            Value(op="div", args=(3, 4), kind=FULL),
        ),
        outputs=(5,),
    )


def variance(count):
    """Row mean, then the sum of squared deviations; ``count`` is what the sum is divided by."""
    return Region(
        values=(
            Value(op="input", kind=FULL, index=0),
            count,
            Value(op="row_sum", args=(0,), kind=ROW),
            Value(op="div", args=(2, 1), kind=ROW),
            Value(op="sub", args=(0, 3), kind=FULL),
            Value(op="mul", args=(4, 4), kind=FULL),
            Value(op="row_sum", args=(5,), kind=ROW),
        ),
        outputs=(6,),
    )


def test_maximum_and_sum_of_exponentials_share_a_pass():
    """One pass for both, so that the softmax reads a long row twice, not three times."""
    region = softmax(1)
    assert [triton_online.Merge("softmax", 1, 4, 0, 1)] == triton_online.merges(region)
    assert [0, 1, 1, 1, 1, 1] == triton_online.passes(region)


def test_exponentials_of_something_else_keep_their_own_pass():
    """Subtracting anything but the maximum of the same values has no running correction."""
    assert [] == triton_online.merges(softmax(0))


def test_mean_and_squared_deviations_share_a_pass():
    """Welford's recurrence gives both sums."""
    count = Value(op="scalar", kind=SCALAR, index=0)
    assert [triton_online.Merge("variance", 2, 6, 0, 3)] == triton_online.merges(variance(count))


def test_a_center_that_differs_by_column_keeps_its_own_pass():
    """The recurrence needs one center per row."""
    assert [] == triton_online.merges(variance(Value(op="input", kind=COLUMN, index=1)))


def test_reductions_without_a_partner_count_one_pass_each():
    """A second reduction that needs the first waits for it."""
    region = Region(
        values=(
            Value(op="input", kind=FULL, index=0),
            Value(op="row_sum", args=(0,), kind=ROW),
            Value(op="mul", args=(0, 1), kind=FULL),
            Value(op="row_max", args=(2,), kind=ROW),
        ),
        outputs=(3,),
    )
    assert [] == triton_online.merges(region)
    assert [0, 1, 1, 2] == triton_online.passes(region)
