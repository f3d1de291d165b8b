# SPDX-License-Identifier: Apache-2.0
"""The file of a program, imported in its own process."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import torch


def of(path: str, imports: list[str], threads: int) -> ModuleType:
    """The file ``path`` in the current folder, which is on ``sys.path`` from now on, before ``imports``. ``threads``:
    how many torch has from now on, and OpenMP's runtime where it is loaded now, and how many CPUs Python says there
    are; 0 leaves that as it is."""
    if threads:
        torch.set_num_threads(threads)
        os.cpu_count = lambda: threads
        os.sched_getaffinity = lambda pid: set(range(threads))
        os.putenv("OMP_NUM_THREADS", str(threads))
    file = Path.cwd() / path
    sys.path[:0] = [str(file.parent), *imports]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
