# SPDX-License-Identifier: Apache-2.0
"""CudaArena against a recorded driver: argument layouts, order of calls, cleanup, and errors."""

import ctypes
import os

import pytest
import torch

from kernelwright.errors import DeviceLost, NoSuchDevice
from kernelwright.judge.buffers_cuda import Access, CudaArena, Location, Properties, load_driver

STEP = 2 << 20


class FakeDriver:
    """Records calls by name and writes plausible results through the out-pointers."""

    def __init__(self, failing: str = "", code: int = 0) -> None:
        self.calls: list[tuple] = []
        self.failing, self.code = failing, code

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, arguments))
            if name == self.failing:
                return self.code
            getattr(type(self), f"_{name}", lambda *_: None)(self, *arguments)
            return 0

        return call

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def arguments(self, wanted: str) -> tuple:
        return next(arguments for name, arguments in self.calls if name == wanted)

    def _cuDeviceGet(self, out, ordinal):
        out._obj.value = ordinal

    def _cuMemGetAllocationGranularity(self, out, properties, option):
        out._obj.value = STEP

    def _cuMemCreate(self, out, size, properties, flags):
        out._obj.value = 77

    def _cuMemExportToShareableHandle(self, out, handle, kind, flags):
        out._obj.value = os.open("/dev/null", os.O_RDONLY)

    def _cuMemImportFromShareableHandle(self, out, fd, kind):
        out._obj.value = 88

    def _cuMemAddressReserve(self, out, size, align, address, flags):
        out._obj.value = 0x7F0000000000

    def _cuGetErrorName(self, code, out):
        out._obj.value = b"CUDA_ERROR_MADE_UP"


def host_view(address: int, size: int, device: int) -> torch.Tensor:
    """Stands in for the device tensor: host memory of the same length."""
    return torch.zeros(size, dtype=torch.uint8)


def test_structures_have_the_sizes_of_the_c_header():
    """A wrong field width shifts every later field and the driver refuses or, worse, misreads."""
    assert (8, 32, 12) == (ctypes.sizeof(Location), ctypes.sizeof(Properties), ctypes.sizeof(Access))
    assert 8 == Properties.location.offset
    assert 16 == Properties.win32.offset
    assert 24 == Properties.flags.offset


def test_create_rounds_up_to_the_granularity_and_exports_a_descriptor():
    """cuMemCreate and cuMemMap refuse sizes that are no multiple of the granularity."""
    driver = FakeDriver()
    with CudaArena.create(STEP + 1, 3, driver=driver, view=host_view) as arena:
        assert 2 * STEP == arena.size
        assert 2 * STEP == arena.tensor.numel()
        assert torch.uint8 == arena.tensor.dtype
        assert arena.fd >= 0
        assert not os.get_inheritable(arena.fd)
        properties = driver.arguments("cuMemCreate")[2]._obj
        assert (1, 1, 1, 3) == (
            properties.type,
            properties.handle_types,
            properties.location.type,
            properties.location.id,
        )
        assert (0x7F0000000000, 2 * STEP, 0, 77, 0) == driver.arguments("cuMemMap")
        access = driver.arguments("cuMemSetAccess")[2]._obj
        assert (1, 3, 3) == (access.location.type, access.location.id, access.flags)


def test_attach_hands_the_descriptor_over_by_value_and_keeps_it_open():
    """The driver takes the descriptor in the pointer argument itself, not through it."""
    driver = FakeDriver()
    fd = os.open("/dev/null", os.O_RDONLY)
    with CudaArena.attach(fd, STEP, 0, driver=driver, view=host_view) as arena:
        out, passed, kind = driver.arguments("cuMemImportFromShareableHandle")
        assert (fd, 1) == (passed.value, kind)
        assert (0x7F0000000000, STEP, 0, 88, 0) == driver.arguments("cuMemMap")
        assert -1 == arena.fd
    os.close(fd)


def test_close_unmaps_frees_and_releases_once_in_that_order():
    """Freeing the address range before unmapping is an error, and a second close must do nothing."""
    driver = FakeDriver()
    arena = CudaArena.create(1, 0, driver=driver, view=host_view)
    fd = arena.fd
    before = len(driver.calls)
    arena.close()
    arena.close()
    assert ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"] == driver.names()[before:]
    assert arena.tensor is None
    with pytest.raises(OSError):
        os.fstat(fd)


@pytest.mark.parametrize(
    ("failing", "code", "error"),
    [
        ("cuInit", 100, NoSuchDevice),
        ("cuDeviceGet", 101, NoSuchDevice),
        ("cuMemCreate", 2, torch.cuda.OutOfMemoryError),
        ("cuMemMap", 719, DeviceLost),
    ],
)
def test_each_driver_code_raises_its_own_error(failing, code, error):
    """A full card, a missing card and a lost card ask the person for three different things."""
    driver = FakeDriver(failing, code)
    with pytest.raises(error, match="CUDA_ERROR_MADE_UP"):
        CudaArena.create(1, 0, driver=driver, view=host_view)


def test_a_failure_half_way_gives_back_what_was_taken():
    """A mapping that fails must not leak the reservation or the allocation."""
    driver = FakeDriver("cuMemSetAccess", 719)
    with pytest.raises(DeviceLost):
        CudaArena.create(1, 0, driver=driver, view=host_view)
    assert ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"] == driver.names()[-3:]


def test_a_missing_driver_is_no_such_device():
    """Where libcuda is not installed the message names the library and the way out."""
    with pytest.raises(NoSuchDevice, match="libcuda-that-is-not-there"):
        load_driver("libcuda-that-is-not-there.so.1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_two_mappings_of_one_descriptor_are_the_same_device_memory():
    """What is written through one mapping is read through the other, also after the first is gone."""
    with CudaArena.create(1 << 20, 0) as first:
        second = CudaArena.attach(first.fd, first.size, 0)
        first.tensor.fill_(7)
        torch.cuda.synchronize()
        assert 7 * first.size == int(second.tensor.sum(dtype=torch.int64))
    assert 7 == int(second.tensor[-1])
    second.close()
