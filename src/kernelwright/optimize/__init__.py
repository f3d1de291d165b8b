# SPDX-License-Identifier: Apache-2.0
"""The loop; the one place where proposers, workers, search and ledger meet."""

from kernelwright.optimize.result import Event, Listener, Options, Result
from kernelwright.optimize.run import optimize_task, resume_run
from kernelwright.optimize.services import Services
from kernelwright.optimize.verbs import (
    admit_task,
    judge_candidate,
    list_runs,
    measure_limits,
    measure_machine,
    write_report,
)

__all__ = [
    "Event",
    "Listener",
    "Options",
    "Result",
    "Services",
    "admit_task",
    "judge_candidate",
    "list_runs",
    "measure_limits",
    "measure_machine",
    "optimize_task",
    "resume_run",
    "write_report",
]
