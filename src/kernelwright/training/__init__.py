# SPDX-License-Identifier: Apache-2.0
"""For people who train models: verified records out of runs, and an environment whose reward is the judge's."""

from kernelwright.training.data import Curation, export_data
from kernelwright.training.environment import Environment, Reward, Rubric

__all__ = ["Curation", "Environment", "Reward", "Rubric", "export_data"]
