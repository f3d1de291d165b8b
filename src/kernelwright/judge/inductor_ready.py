# SPDX-License-Identifier: Apache-2.0
"""Imported by the zygote of programs that torch compiles for a GPU: it shall compile in threads, not in processes.

Inductor reads one number of the environment twice: as how many processes compile beside the program, which nothing
would stop between timed windows, and as how many threads prepare the choices that it tries. Only the first is kept in
its settings; so those say one here, and the environment says how many threads.
"""

import contextlib
import importlib

with contextlib.suppress(Exception):
    importlib.import_module("torch._inductor.config").compile_threads = 1  # type: ignore[attr-defined]
