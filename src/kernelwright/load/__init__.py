# SPDX-License-Identifier: Apache-2.0
"""Files to Tasks and Candidates, by reading alone: nothing is imported or executed, torch is not needed."""

from kernelwright.load.candidates import load_candidate
from kernelwright.load.tasks import load_task

__all__ = ["load_candidate", "load_task"]
