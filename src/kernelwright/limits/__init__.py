# SPDX-License-Identifier: Apache-2.0
"""Speed-of-light bounds from a traced reference and a measured Machine.

Two bounds: *unavoidable* (bytes only, which no algebraic rewrite can beat; the only one that may void a
time) and *as written* (the reference's arithmetic too, fused ideally).
"""

from kernelwright.limits.bounds import Bounds, OperatorRow, bounds, reach_us, unavoidable_us
from kernelwright.limits.trace import Operator, Trace, trace, trace_module

__all__ = [
    "Bounds",
    "Operator",
    "OperatorRow",
    "Trace",
    "bounds",
    "reach_us",
    "trace",
    "trace_module",
    "unavoidable_us",
]
