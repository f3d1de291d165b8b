# SPDX-License-Identifier: Apache-2.0
"""The only place where processes start: trusted children that die with us, and confined ones that reach nothing."""

from __future__ import annotations

from kernelwright.sandbox.confinement import adopt_parent, close_descriptors, detach, restrict
from kernelwright.sandbox.environment import confined, replace, trusted
from kernelwright.sandbox.kernel import PR_SET_CHILD_SUBREAPER, die_with_parent, prctl
from kernelwright.sandbox.limits import Finished, Limits, death, private_bytes, widen_memory
from kernelwright.sandbox.processes import Child, reached_level, run, start

__all__ = [
    "PR_SET_CHILD_SUBREAPER",
    "Child",
    "Finished",
    "Limits",
    "adopt_parent",
    "close_descriptors",
    "confined",
    "death",
    "detach",
    "die_with_parent",
    "prctl",
    "private_bytes",
    "reached_level",
    "replace",
    "restrict",
    "run",
    "start",
    "trusted",
    "widen_memory",
]
