# SPDX-License-Identifier: Apache-2.0
"""torch/extension.h, which every extension that a candidate builds includes, compiled once for each set of flags.

With it, what load_inline compiles takes 10 s of a core for 27 without optimisation, and 19 for 47 with -O3; the object
is the same to the bit (torch 2.13, g++ 12, a busy machine). Making it takes 55 s and 0.8 GB, so it is made for the
second candidate with the same flags, and for few sets of flags. A command of ours makes it, in the sandbox and with
flags from a list; candidates read it by way of CPATH, which g++ searches before torch's own folder, and cannot write
to where it lies. g++ itself passes over one that was made with other flags.
"""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import sysconfig
import uuid
from pathlib import Path
from typing import Any

import torch

from kernelwright import sandbox, wire
from kernelwright.candidate import Candidate

HEADER = "torch/extension.h"
FLAG = re.compile(r"-O[0-3]?|-march=native|-mtune=native|-mavx2|-mavx512f|-mfma|-fopenmp|-ffast-math|-g|-Wall")
"""Flags that a header is compiled with; a candidate that asks for another one compiles without it."""
BUILDERS = frozenset({"load", "load_inline"})
MOST = 4
"""Sets of flags on one machine, for 0.8 GB each."""
LIMITS = sandbox.Limits(seconds=600.0, memory_bytes=8 << 30, processes=64, file_bytes=2 << 30, output_bytes=1 << 20)


def flags(candidate: Candidate) -> tuple[str, ...] | None:
    """What the first extension of a candidate is compiled with; None where that is not on the list, or not plain."""
    texts = [text for name, text in candidate.sources if name.endswith(".py")]
    try:
        nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in nodes:
        if isinstance(node, ast.Call) and _name(node.func) in BUILDERS:
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            try:
                found = ast.literal_eval(given["extra_cflags"]) if "extra_cflags" in given else []
                own = ast.literal_eval(given["no_implicit_headers"]) if "no_implicit_headers" in given else False
            except ValueError:
                return None
            listed = isinstance(found or [], list) and all(FLAG.fullmatch(str(flag)) for flag in found or [])
            return tuple(found or ()) if listed and not own else None
    return None


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def headers(candidate: Candidate, cache: Path, *, make: bool = False) -> Path | None:
    """A folder for CPATH, if there is one for this candidate. ``make``: another one is about to be built."""
    wanted = flags(candidate)
    if wanted is None:
        return None
    kept = cache / "extension-headers"
    said = (torch.__version__, torch.version.git_version, torch.__file__, compiler(), HEADER)
    folder = kept / wire.digest(*said, list(wanted))[:32]
    if make and not folder.is_dir():
        asked = folder.with_suffix(".asked")
        if asked.exists() and sum(place.is_dir() and "-" not in place.name for place in kept.iterdir()) < MOST:
            _make(folder, wanted)
        kept.mkdir(parents=True, exist_ok=True)
        asked.touch()
    return folder if (folder / f"{HEADER}.gch").is_file() else None


def compiler() -> str:
    """What tells one C++ compiler from another, without asking it."""
    found = Path(shutil.which("c++") or "/").resolve()
    return f"{found} {found.stat().st_mtime_ns}"


def _make(folder: Path, wanted: tuple[str, ...]) -> None:
    """Compile the header; where that fails the folder is empty, and nobody tries again."""
    workshop = folder.with_name(f"tmp-{uuid.uuid4().hex}")
    header = workshop / HEADER
    header.parent.mkdir(parents=True)
    header.write_text(f"#include_next <{HEADER}>\n", encoding="utf-8")  # for whoever cannot use what is made of it
    made = header.with_name(f"{header.name}.gch")
    command = ["c++", "-w", "-x", "c++-header", str(header), "-o", str(made), *_as_torch(), *wanted]
    env = {"TMPDIR": str(workshop), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
    done = sandbox.run(command, limits=LIMITS, writable=(workshop,), cwd=workshop, env=env)
    if done.killed or done.returncode:
        made.unlink(missing_ok=True)
    try:
        workshop.rename(folder)
    except OSError:  # another judge made it meanwhile
        shutil.rmtree(workshop, ignore_errors=True)


def _as_torch() -> list[str]:
    """The flags that torch.utils.cpp_extension adds by itself, but for the name of the extension."""
    theirs: Any = importlib.import_module("torch.utils.cpp_extension")
    text = Path(theirs.__file__).read_text(encoding="utf-8")
    standard = re.search(r"'-fPIC', '(-std=c\+\+\d\d)'", text)
    includes = [*theirs.include_paths("cpu"), sysconfig.get_path("include", scheme="posix_prefix")]
    return [
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(word for place in includes for word in ("-isystem", place)),
        "-fPIC",
        *([standard[1]] if standard else []),
    ]
