# SPDX-License-Identifier: Apache-2.0
"""Where tests run side by side each process computes in its share of the processors."""

from __future__ import annotations

import os

import torch

_BESIDE = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _BESIDE > 1:
    # Two times two threads on two cores wait for each other: a softmax's precision line took 56 s, and 26 alone.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // _BESIDE))
