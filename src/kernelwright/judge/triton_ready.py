# SPDX-License-Identifier: Apache-2.0
"""Imported by the zygote of a GPU's judge before it forks: Triton, and the digest of Triton's own files.

Each process would import the one (0.24 s) and compute the other at its first launch (0.41 s, over 0.3 GB of library):
both are the same in all. Without Triton, or with one that keeps its digest elsewhere, nothing happens.
"""

import contextlib
import importlib

with contextlib.suppress(Exception):
    importlib.import_module("triton")
    importlib.import_module("triton.runtime.cache").triton_key()
