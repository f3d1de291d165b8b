# SPDX-License-Identifier: Apache-2.0
"""The only place where processes start: trusted children that die with us, and confined ones that reach nothing."""

from __future__ import annotations

from kernelwright.sandbox.confinement import (
    OWN,
    Permission,
    adopt_parent,
    close_descriptors,
    detach,
    restrict,
    root_works,
    spare_user,
)
from kernelwright.sandbox.environment import chosen, confined, replace, trusted
from kernelwright.sandbox.kernel import PR_SET_CHILD_SUBREAPER, die_with_parent, prctl
from kernelwright.sandbox.limits import Finished, Limits, crowd, death, family, resident_bytes
from kernelwright.sandbox.processes import Child, command, reached_level, run, start

__all__ = [
    "OWN",
    "PR_SET_CHILD_SUBREAPER",
    "Child",
    "Finished",
    "Limits",
    "Permission",
    "adopt_parent",
    "chosen",
    "close_descriptors",
    "command",
    "confined",
    "crowd",
    "death",
    "detach",
    "die_with_parent",
    "family",
    "prctl",
    "reached_level",
    "replace",
    "resident_bytes",
    "restrict",
    "root_works",
    "run",
    "spare_user",
    "start",
    "trusted",
]
