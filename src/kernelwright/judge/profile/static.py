# SPDX-License-Identifier: Apache-2.0
"""Facts of a built candidate that need no device and no run of it: the tier between compiling and the first call.

Names are those of the other compiled facts. ``object`` is the content address of what the compiler made: two sources
with one object are one program.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelwright.judge.profile import binary, sass

REGION = re.compile(rb"([\w$.]+\._omp_fn\.\d+)")
"""The name gcc gives to the body of an OpenMP region that it made a function of."""
WORST = ("registers", "static_shared_bytes", "stack_bytes")
"""What the kernel with most of it decides; everything else is added up over kernels."""


def facts(folder: Path, language: str, cubins: Path | None = None) -> dict[str, float | str]:
    """Compiled facts of the candidate built in ``folder``; empty where its language compiles nothing ahead.

    ``cubins``: where Triton kept what it compiled in an earlier run of this candidate. Nothing here is ever a verdict.
    """
    if language == "cpp":
        return _host(folder)
    if language == "cuda":
        return _device(sorted(folder.rglob("*.so")))
    if language == "triton" and cubins is not None and cubins.is_dir():
        return _device(sorted(cubins.rglob("*.cubin")))
    return {}


def _host(folder: Path) -> dict[str, float | str]:
    objects = sorted(folder.rglob("*.so"))
    regions = {name for path in objects for name in REGION.findall(path.read_bytes())}
    found: dict[str, float | str] = dict(binary.facts(folder)[0])
    return found | {"parallel_regions": float(len(regions)), "object": _address(objects)}


def _device(objects: Sequence[Path]) -> dict[str, float | str]:
    with tempfile.TemporaryDirectory() as scratch:
        kernels, _ = sass.facts(objects, Path(scratch))
    found: dict[str, float | str] = {"object": _address(objects)} if objects else {}
    if not kernels:
        return found
    names = sorted({name for kernel in kernels.values() for name in kernel})
    for name in names:
        values = [kernel.get(name, 0.0) for kernel in kernels.values()]
        found[name] = max(values) if name in WORST else sum(values)
    return found | {"kernels": float(len(kernels))}


def _address(objects: Sequence[Path]) -> str:
    """Content address of compiled objects, whatever they are called."""
    return hashlib.sha256(b"\0".join(sorted(path.read_bytes() for path in objects))).hexdigest()[:32]
