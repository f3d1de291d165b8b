# SPDX-License-Identifier: Apache-2.0
"""What a convolution by cuDNN holds beside its results, by cuDNN's own word where it can be asked.

It is asked through the library that torch has loaded, on the device of the tensors; where there is neither, nothing is
answered. Asking takes a handle, hence a context on that device: only a process that may hold the device should predict
for it (the judge does, and the benchmarks).
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from kernelwright.limits.cudnn_graph import DATA, VERSIONS, Convolution, Laid, Refused, ask, opened

NAME = "libcudnn.so.9"


class Asking:
    """cuDNN as torch has loaded it, a handle for each device, and the answers so far.

    A handle is kept as long as the process, as torch keeps its own: destroying one waits for the device.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.handles: dict[int, int] = {}
        self.answers: dict[tuple[int, Convolution], int | Refused] = {}

    def workspace(self, device: int, asked: Convolution) -> int | Refused:
        """Bytes, or why they cannot be known. What was refused once is not asked again."""
        with self.lock:
            found = self.answers.get((device, asked))
            if found is None:
                found = self.answers[device, asked] = self._answer(device, asked)
            return found

    def _answer(self, device: int, asked: Convolution) -> int | Refused:
        try:
            library = loaded()
            with torch.cuda.device(device):
                if device not in self.handles:
                    self.handles[device] = opened(library)
                return ask(library, self.handles[device], asked)
        except Refused as refused:
            return refused
        except (OSError, AttributeError, RuntimeError) as error:  # no library, not this one, no device
            return Refused(f"{type(error).__name__}: {error}")


def loaded() -> Any:
    """The library in this process; OSError where torch has none or not by this name, Refused where it is another."""
    library = ctypes.CDLL(NAME, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    takes = {
        "cudnnCreate": [pointer],
        "cudnnBackendCreateDescriptor": [number, pointer],
        "cudnnBackendDestroyDescriptor": [pointer],
        "cudnnBackendFinalize": [pointer],
        "cudnnBackendSetAttribute": [pointer, number, number, ctypes.c_int64, pointer],
        "cudnnBackendGetAttribute": [pointer, number, number, ctypes.c_int64, pointer, pointer],
    }
    for name, types in takes.items():
        getattr(library, name).argtypes = types
    library.cudnnGetVersion.restype = ctypes.c_size_t
    if library.cudnnGetVersion() not in VERSIONS:
        raise Refused(f"version {library.cudnnGetVersion()}")
    return library


ASKING = Asking()
"""Of this process."""


def inside(backend: str, given: dict[str, Any], results: tuple[torch.Tensor, ...]) -> list[int] | None:
    """Bytes that a convolution, or its backward pass, holds beside its results at its worst moment; None where cuDNN
    does not say, or where torch was told to try all of its engines (``torch.backends.cudnn.benchmark``).

    ``backend`` is torch's name of it, ``given`` the operator's arguments by name.
    """
    x, weight = given["input"], given["weight"]
    if torch.backends.cudnn.benchmark or x.dtype not in DATA or x.dtype != weight.dtype:
        return None
    if not all(one.numel() for one in (x, weight, *results)):
        return None
    transposed = backend == "CudnnTranspose"
    if "grad_output" in given:
        return _backward(given, transposed)
    last = _last(x, weight)
    operation = ("data", results[0], weight, x) if transposed else ("forward", x, weight, results[0])
    size = _asked(given, last, *operation)
    return None if size is None else [_copy(x, last), _copy(weight, last), size]


def _backward(given: dict[str, Any], transposed: bool) -> list[int] | None:
    """The gradient of the input comes first, while that of the weight is not there yet (ATen/native/cudnn:
    cudnn_convolution_backward); copies that both need stay in between."""
    x, weight, grad = given["input"], given["weight"], given["grad_output"]
    wants, last = given["output_mask"], _last(x, weight)
    kept = [_copy(grad, last), _copy(x, last) if wants[1] else 0]
    moments = []
    if wants[0]:
        operation = ("forward", grad, weight, x) if transposed else ("data", x, weight, grad)
        size = _asked(given, last, *operation)
        if size is None:
            return None
        later = weight.numel() * weight.element_size() if wants[1] else 0
        moments.append([*kept, max(size + _copy(weight, last) - later, 0)])
    if wants[1]:
        size = _asked(given, last, "filter", *((grad, weight, x) if transposed else (x, weight, grad)))
        if size is None:
            return None
        moments.append([*kept, size])
    return max(moments, key=sum, default=[])


def _asked(
    given: dict[str, Any], last: bool, operation: str, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor
) -> int | None:
    flat = x.dim() == 3  # torch gives rows a height of one (ATen/native/Convolution.cpp: view1d_as_2d)
    numbers = {
        name: ((low,) if flat else ()) + tuple(int(number) for number in given[name])
        for name, low in (("stride", 1), ("padding", 0), ("dilation", 1))
    }
    asked = Convolution(
        operation, x.dtype, _laid(x, last), _laid(w, last), _laid(y, last), **numbers,
        tf32=_tf32(), deterministic=torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    found = ASKING.workspace(given["input"].device.index or 0, asked)
    return None if isinstance(found, Refused) else found


def _tf32() -> bool:
    found = getattr(torch.backends.cudnn, "conv", None)  # since 2.9; the older name warns there
    return found.fp32_precision == "tf32" if found is not None else bool(torch.backends.cudnn.allow_tf32)


def _last(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether torch lets it work channels last (ATen/native/ConvUtils.h: cudnn_conv_suggest_memory_format)."""
    found = {suggest_memory_format(one) for one in (x, weight)}
    return x.dtype != torch.float64 and bool(found & {torch.channels_last, torch.channels_last_3d})


def _ready(tensor: torch.Tensor, last: bool) -> bool:
    found = {4: torch.channels_last, 5: torch.channels_last_3d}[tensor.dim()] if last else torch.contiguous_format
    return tensor.is_contiguous(memory_format=found)


def _copy(tensor: torch.Tensor, last: bool) -> int:
    """Bytes of the copy that torch makes of a tensor that lies otherwise."""
    return 0 if _ready(tensor, last) else tensor.numel() * tensor.element_size()


def _laid(tensor: torch.Tensor, last: bool) -> Laid:
    sizes = tuple(int(size) for size in tensor.shape)
    start = tensor.storage_offset() * tensor.element_size() if _ready(tensor, last) else 0
    return Laid((*sizes[:2], 1, *sizes[2:]) if len(sizes) == 3 else sizes, last, math.gcd(32, int(start)))
