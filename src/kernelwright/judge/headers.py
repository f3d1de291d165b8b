# SPDX-License-Identifier: Apache-2.0
"""The headers that torch's C++ back end puts before every kernel: compiled once, read by all that compile on a CPU.

They are most of what compiling a kernel takes: 2.2 s of a core without, 0.6 s with them, for 5.1 s once (torch 2.13,
g++ 12). Torch would keep them in a folder that everyone who compiles writes to. Here the program that fills the cache
others begin with makes them, in a folder that nobody may write to afterwards; whoever finds none compiles without. g++
itself passes over those of another compiler.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

_PREFIX = Path("include") / "torch" / "csrc" / "inductor" / "cpp_prefix.h"
_READY = ".gch"


def folder(cache: Path) -> Path:
    """Where those of this installation of torch are kept."""
    prefix = Path(torch.__file__).parent / _PREFIX
    changed = prefix.stat().st_mtime_ns if prefix.is_file() else 0
    said = f"{torch.__version__} {torch.version.git_version} {prefix} {changed}"
    return cache / f"headers-{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def use(place: str, writable: Sequence[str] = ()) -> None:
    """Have torch's compiler, if it is loaded here, read the headers in a folder; in one that lies below what this
    program may write, it also puts what it lacks there. ``place`` may be empty: no headers.

    Torch 2.13 has the function that is replaced; in a version without it nothing changes.
    """
    codecache: Any = sys.modules.get("torch._inductor.codecache")
    config: Any = sys.modules.get("torch._inductor.config")
    make = any(Path(place).is_relative_to(own) for own in writable)
    if not place or not (make or any(Path(place).glob(f"*{_READY}"))):
        return
    if hasattr(codecache, "_precompile_header") and hasattr(config, "cpp_cache_precompile_headers"):
        codecache._precompile_header = functools.partial(_found, Path(place), make)
        config.cpp_cache_precompile_headers = True


def _found(place: Path, make: bool, header: str, command: str, **options: Any) -> str | None:
    """In the place of torch's ``_precompile_header``: the file to include for a header and a command line that is like
    the kernel's, or None for compiling without."""
    path = place / f"{hashlib.sha256(f'{header} {command}'.encode()).hexdigest()[:32]}.h"
    if make and not Path(f"{path}{_READY}").is_file():
        _make(path, header, options)
    return str(path) if Path(f"{path}{_READY}").is_file() else None


def _make(path: Path, header: str, options: dict[str, Any]) -> None:
    """Compile a header as torch does; nothing is there where that fails, or the compiler's own files are not g++'s."""
    try:
        from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions, is_gcc  # noqa: PLC0415 - seconds

        if not is_gcc():  # clang's know the path they were made at
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#include <{header}>\n", encoding="utf-8")
        flags = {key: value for key, value in options.items() if key != "extra_flags"}  # what is linked
        build = CppTorchDeviceOptions(**flags, precompiling=True)
        CppBuilder(name=str(path), sources=str(path), BuildOption=build).build()
    except (ImportError, AttributeError, TypeError, RuntimeError, OSError):
        Path(f"{path}{_READY}").unlink(missing_ok=True)
