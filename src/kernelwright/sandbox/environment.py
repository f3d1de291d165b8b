# SPDX-License-Identifier: Apache-2.0
"""The environment of children, by allow list: a secret cannot leak through a name nobody put on the list."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

TRUSTED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "PYTHONPATH", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "CC", "CXX", "NVCC",
)  # fmt: skip
"""What a trusted child inherits when the caller names nothing."""

_CONFINED = (
    "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
)  # fmt: skip
_FIXED = {
    # Last what came with this interpreter's packages: without ninja no extension of torch's is built.
    "PATH": f"/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin:{Path(sys.executable).parent}",
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
    "USER": "kernelwright",
    "LOGNAME": "kernelwright",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}


_HERE = Path(__file__).resolve().parents[2]
_OWN = [] if _HERE.name in ("site-packages", "dist-packages") else [str(_HERE)]


def trusted(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a child of ours: the TRUSTED names that are set here, and ``extra``.

    PYTHONPATH is made absolute, because the child starts in another folder, and begins with the folder this package
    was loaded from, unless that is an installed one, which every interpreter of the environment finds by itself."""
    found = {name: os.environ[name] for name in TRUSTED if name in os.environ}
    given = [os.path.abspath(part) for part in found.get("PYTHONPATH", "").split(os.pathsep) if part]
    found["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*_OWN, *given]))
    return found | dict(extra or {})


def chosen(names: Iterable[str]) -> dict[str, str]:
    """PATH, HOME and LANG as they are here, and ``names`` where they are set: nothing else."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", *names) if name in os.environ}


def confined(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of an untrusted child: fixed values, the locale and CUDA's paths, and ``extra``."""
    kept = {name: os.environ[name] for name in _CONFINED if name in os.environ}
    return _FIXED | kept | dict(extra or {})


def replace(names: Mapping[str, str]) -> None:
    """Make ``names`` the whole environment of this (forked) process, for C code too."""
    os.environ.clear()
    os.environ.update(names)
