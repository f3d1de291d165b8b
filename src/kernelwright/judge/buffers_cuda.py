# SPDX-License-Identifier: Apache-2.0
"""Device memory shared by two processes: the judge allocates and exports it, the confined program maps it.

The memory is made with ``cuMemCreate`` and travels as a POSIX file descriptor, so it crosses user, pid and
network namespaces (CUDA's older IPC handles do not). Both sides see one flat uint8 tensor. Only ctypes on
``libcuda.so.1`` is used. Method: CUDA driver API, "Virtual Memory Management".
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.errors import DeviceLost, NoSuchDevice

POSIX_FD = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NO_DEVICE = {3, 34, 35, 46, 100, 101}
"""Driver codes for "no usable device": not initialised, stub, old driver, unavailable, none, bad ordinal."""


class Location(ctypes.Structure):
    """CUmemLocation: 8 bytes."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Flags(ctypes.Structure):
    _fields_ = [
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class Properties(ctypes.Structure):
    """CUmemAllocationProp: 32 bytes."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", _Flags),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc: 12 bytes."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.c_void_p, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.c_void_p, ctypes.c_int),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuMemGetAllocationGranularity": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
    "cuMemCreate": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_ulonglong),
    "cuMemExportToShareableHandle": (ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_int, ctypes.c_ulonglong),
    "cuMemImportFromShareableHandle": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
    "cuMemAddressReserve": (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_ulonglong,
        ctypes.c_ulonglong,
    ),
    "cuMemMap": (
        ctypes.c_ulonglong,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_ulonglong,
        ctypes.c_ulonglong,
    ),
    "cuMemSetAccess": (ctypes.c_ulonglong, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t),
    "cuMemUnmap": (ctypes.c_ulonglong, ctypes.c_size_t),
    "cuMemAddressFree": (ctypes.c_ulonglong, ctypes.c_size_t),
    "cuMemRelease": (ctypes.c_ulonglong,),
    "cuGetErrorName": (ctypes.c_int, ctypes.c_void_p),
}


def load_driver(name: str = "libcuda.so.1") -> ctypes.CDLL:
    """The CUDA driver library with argument types declared. Raises NoSuchDevice where it is not installed."""
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise NoSuchDevice(
            "the CUDA driver is not installed", got=str(error), expected=name, what_next="use --device cpu"
        ) from error
    for function, arguments in _SIGNATURES.items():
        handle = getattr(library, function)
        handle.argtypes, handle.restype = arguments, ctypes.c_int
    return library


class _Bytes:
    """What torch.as_tensor reads: a pointer with a length. torch keeps it alive with the tensor."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class CudaArena:
    """One segment of device memory, in the process that created it or in one that attached it.

    ``tensor`` is flat, uint8, ``size`` bytes (the request, rounded up to the driver's granularity, 2 MiB on
    current hardware). It and its views must not be used after ``close``. ``fd`` is open in the creating
    process only; send it over a unix socket (SCM_RIGHTS). The creating process never reads through
    it, so it may be closed with ``close_fd`` once every receiver holds its own copy.
    """

    def __init__(self, driver: Any, device: int, size: int) -> None:
        self.driver, self.device, self.size = driver, device, size
        self.fd, self.inode = -1, 0
        self.address, self._handle, self._reserved, self._mapped = 0, 0, False, False
        self.tensor: torch.Tensor | None = None

    @classmethod
    def create(cls, size: int, device: int, *, driver: Any = None, view: Callable[..., Any] | None = None) -> CudaArena:
        """Allocate at least ``size`` bytes on device ``device``, map them here and export them as ``fd``.

        Raises NoSuchDevice when the device is not there, torch.cuda.OutOfMemoryError when it is full,
        DeviceLost for any other failure.
        """
        arena = cls(driver if driver is not None else load_driver(), device, max(size, 1))
        try:
            properties = arena._enter()
            step = ctypes.c_size_t()
            arena._call("cuMemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(properties), 0)
            arena.size = -(-arena.size // step.value) * step.value
            handle = ctypes.c_ulonglong()
            arena._call("cuMemCreate", ctypes.byref(handle), arena.size, ctypes.byref(properties), 0)
            arena._handle = handle.value
            fd = ctypes.c_int(-1)
            arena._call("cuMemExportToShareableHandle", ctypes.byref(fd), arena._handle, POSIX_FD, 0)
            arena.fd = fd.value
            os.set_inheritable(arena.fd, False)
            arena._map(view)
        except BaseException:
            arena.close()
            raise
        return arena

    @classmethod
    def attach(
        cls, fd: int, size: int, device: int, *, driver: Any = None, view: Callable[..., Any] | None = None
    ) -> CudaArena:
        """Map the memory behind a received ``fd``; ``size`` is the creator's ``arena.size``.

        ``fd`` stays the caller's to close. Raises as ``create`` does.
        """
        arena = cls(driver if driver is not None else load_driver(), device, size)
        try:
            arena._enter()
            handle = ctypes.c_ulonglong()
            arena._call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), POSIX_FD)
            arena._handle = handle.value
            arena._map(view)
        except BaseException:
            arena.close()
            raise
        return arena

    def close_fd(self) -> None:
        """Close the exported descriptor; the memory stays mapped. Safe to call twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Unmap and give the memory back (it is freed when the last process lets go). Safe to call twice.

        Errors are swallowed on purpose: on a lost device every call fails and the process is about to end.
        """
        self.tensor = None
        self.close_fd()
        if self._mapped:
            self.driver.cuMemUnmap(self.address, self.size)
            self._mapped = False
        if self._reserved:
            self.driver.cuMemAddressFree(self.address, self.size)
            self._reserved = False
        if self._handle:
            self.driver.cuMemRelease(self._handle)
            self._handle = 0

    def __enter__(self) -> CudaArena:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(self) -> Properties:
        """Make the device's primary context current in this thread.

        It is torch's own context; the reference taken here is kept until the process ends, as is torch's.
        """
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), self.device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device.value)
        self._call("cuCtxSetCurrent", context)
        return Properties(type=PINNED, handle_types=POSIX_FD, location=Location(ON_DEVICE, device.value))

    def _map(self, view: Callable[..., Any] | None) -> None:
        address = ctypes.c_ulonglong()
        self._call("cuMemAddressReserve", ctypes.byref(address), self.size, 0, 0, 0)
        self.address, self._reserved = address.value, True
        self._call("cuMemMap", self.address, self.size, 0, self._handle, 0)
        self._mapped = True
        access = Access(Location(ON_DEVICE, self.device), READ_WRITE)
        self._call("cuMemSetAccess", self.address, self.size, ctypes.byref(access), 1)
        self.tensor = (view or _view)(self.address, self.size, self.device)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise _error(self.driver, name, code, self)


def _view(address: int, size: int, device: int) -> torch.Tensor:
    return torch.as_tensor(_Bytes(address, size), device=f"cuda:{device}")


def _error(driver: Any, name: str, code: int, arena: CudaArena) -> Exception:
    text = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(text))
    got = f"{name}: {(text.value or b'unknown error').decode('ascii', 'replace')} ({code})"
    if code == OUT_OF_MEMORY:
        return torch.cuda.OutOfMemoryError(f"{arena.size} bytes on cuda:{arena.device}: {got}")
    if code in _NO_DEVICE:
        return NoSuchDevice(
            f"cuda:{arena.device} cannot be used",
            got=got,
            expected="a working CUDA device",
            what_next="use --device cpu",
        )
    return DeviceLost(
        f"cuda:{arena.device} failed while sharing memory", got=got, expected="success", what_next="run again"
    )
