# SPDX-License-Identifier: Apache-2.0
"""The two kernels by which calls are handed over on a device."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.judge import handover
from kernelwright.judge.buffers import Buffers, CallPlan, CpuArena, TensorSpec

PTX = Path(handover.__file__).with_suffix(".ptx")
MADE_BY = "13.0"
NVCC = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout if shutil.which("nvcc") else ""


def test_the_assembly_is_of_the_source_that_lies_beside_it() -> None:
    """Its first line has the digest of what it was made from."""
    source = PTX.with_suffix(".cu").read_bytes()
    assert PTX.read_text().splitlines()[0] == f"// handover.cu, sha256 {hashlib.sha256(source).hexdigest()}"


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs CUDA's assembler")
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_it_is_assembled_for_devices_of_today(tmp_path: Path, target: str) -> None:
    made = subprocess.run(["ptxas", f"-arch={target}", PTX, "-o", tmp_path / "out"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert {b"hand_over", b"answered"} <= set((tmp_path / "out").read_bytes().replace(b".", b"\0").split(b"\0"))


@pytest.mark.skipif(f"release {MADE_BY}" not in NVCC, reason=f"needs CUDA {MADE_BY}, of which other releases differ")
def test_what_devices_of_today_run_is_made_of_it_too(tmp_path: Path) -> None:
    """Byte for byte, by the command in the source."""
    lines = PTX.with_suffix(".cu").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if "nvcc -fatbin" in line)
    command = " ".join(line.removeprefix("//").strip() for line in lines[first : first + 2]).split()
    shutil.copy(PTX.with_suffix(".cu"), tmp_path)
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "handover.fatbin").read_bytes() == handover.FORMS[0] == PTX.with_suffix(".fatbin").read_bytes()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_where_a_driver_takes_no_made_kernel_the_assembly_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it takes neither, that is said."""
    for forms, works in (((b"nothing", handover.FORMS[1]), True), ((b"nothing", b"nothing"), False)):
        monkeypatch.setattr(handover, "FORMS", forms)
        arena = CpuArena.create(1 << 16)
        with contextlib.nullcontext() if works else pytest.raises(RuntimeError, match="cuModuleLoadData failed"):
            handover.Handover(arena, "cuda:0")
        assert arena.tensor is not None
        assert int(torch.cuda.cudart().cudaHostUnregister(arena.tensor.data_ptr())) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("shapes", "dtypes"),
    [
        (((3000, 1111), (7,)), ("float32", "int64")),
        (((1,), (3,)), ("bool", "uint8")),
        (((513, 2), (4096, 700)), ("float16", "float32")),
    ],
)
def test_a_call_waits_for_its_word_is_shown_its_inputs_and_adds_up_its_answers(
    plan: Callable[..., CallPlan], shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]
) -> None:
    """Compared with torch's operators on the host; nothing but the hidden words changes."""
    first = plan((1,))
    inputs, outputs = (
        tuple(TensorSpec.contiguous(shape, dtype) for shape, dtype in zip(shapes[::way], dtypes[::way], strict=True))
        for way in (1, -1)
    )
    made = Buffers.create(
        CallPlan(arguments=first.arguments, inputs=inputs, results=first.results, outputs=outputs, sets=3), "cuda:0"
    )
    memory = made.arena.tensor
    assert memory is not None
    memory.random_(generator=torch.Generator("cuda").manual_seed(5))
    before, sums = memory.cpu(), handover.sums(made, 3).cpu()
    arena = CpuArena.create(1 << 20)
    calls = handover.Handover(arena, "cuda:0")
    for first_word in (0, 77):
        calls.arm(made, first_word, 3, waits=False)
        flags = arena.tensor[:128].view(torch.int32)  # type: ignore[index]
        flags.zero_()
        for _, key in calls._hidden:
            key.copy_(torch.randint(1, 100, key.shape, dtype=key.dtype))
        expected = before.clone()
        for index in range(3):
            calls.before(index)
            calls.after(index)
            torch.cuda.current_stream().query()
            assert int(flags[handover.ANSWERED // 4]) == index
            flags[handover.RELEASED // 4] = index + 1
            torch.cuda.synchronize()
            assert int(flags[handover.ANSWERED // 4]) == index + 1
        told = torch.stack([places for _, places in calls._added], 1)
        assert torch.equal(told, sums)
        assert not torch.equal(memory.cpu(), expected)
        for words, key in calls._hidden:
            words.bitwise_xor_(key.to(words.device))
        assert torch.equal(memory.cpu(), expected)
    made.close()
    del calls, told, flags, words, key  # what else sees the host's memory
    assert arena.tensor is not None
    assert int(torch.cuda.cudart().cudaHostUnregister(arena.tensor.data_ptr())) == 0
