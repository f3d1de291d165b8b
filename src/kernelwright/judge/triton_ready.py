# SPDX-License-Identifier: Apache-2.0
"""Imported by the zygote of a GPU's judge before it forks: Triton, and what its first launch finds out or imports.

Each process would import it (0.24 s), compute the digest of its files at its first launch (0.41 s, over 0.3 GB of
library), import its other dialect there (0.14 s on an H200's host) and ask other programs for the platform and the
place of the driver (0.03 s each): all are the same in every process. No GPU is asked for anything. Without Triton, or
with one that keeps these elsewhere, nothing happens.
"""

import contextlib
import importlib

FOUND_OUT = (
    ("triton", ""),
    ("triton.runtime.cache", "triton_key"),
    ("triton.runtime.build", "platform_key"),
    ("triton.backends.nvidia.driver", "library_dirs"),
    ("triton.tools.tensor_descriptor", ""),
    ("triton.experimental.gluon.nvidia.hopper", ""),
)
"""Modules, and functions in them that remember their result."""

for _module, _name in FOUND_OUT:
    with contextlib.suppress(Exception):
        _found = importlib.import_module(_module)
        if _name:
            getattr(_found, _name)()
