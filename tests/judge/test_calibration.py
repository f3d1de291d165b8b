# SPDX-License-Identifier: Apache-2.0
"""Facts of a device: what a fact takes from its samples, what it says of unsteady ones, energy or the reason."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.judge.calibration import capacity, cpu, energy, identity, store
from kernelwright.judge.calibration.facts import fact, label, staircase
from kernelwright.judge.toolchains import cpp
from kernelwright.machine import Machine, fingerprint


def test_a_rate_is_the_best_sample_and_a_time_the_least() -> None:
    """A limit is what the device can do undisturbed."""
    assert (12.0, 10.0) == (fact("r", "GB/s", [10.0, 12.0, 11.0]).value, fact("t", "us", [10.0, 12.0, 11.0]).value)


def test_samples_far_apart_are_said_to_be_so() -> None:
    """A shared device, or one whose clocks change, shows in the spread; a steady one is left alone."""
    unsteady = fact("r", "GB/s", [10.0, 20.0, 15.0], "read")
    assert "read; samples spread by 67%: shared, or its clocks change" == unsteady.note
    assert "read" == fact("r", "GB/s", [10.0, 10.5, 10.2], "read").note


def test_a_staircase_has_two_steps_an_octave() -> None:
    """Named by their sizes."""
    assert ["1MiB", "1.5MiB", "2MiB", "3MiB", "4MiB"] == [label(size) for size in staircase(1 << 20, 4 << 20)]


def test_energy_counts_between_moves_of_the_counter() -> None:
    """700 W by a counter that moves every 100 ms: what it held before, and moves of the first 250 ms, do not count."""
    moves = [(0, 5.0), *((100_000_000 * step, 5.0 + 70.0 * step) for step in range(1, 9))]
    assert (350.0, 0.5) == energy.between(moves, 250_000_000)


def test_a_counter_that_stands_still_is_no_zero() -> None:
    """One move under load, or none: not measured."""
    for moves in ([(0, 5.0)], [(0, 5.0), (300_000_000, 7.0)]):
        with pytest.raises(OSError, match="did not move"):
            energy.between(moves, 0)


def test_a_counter_is_watched_beside_the_work_and_may_fail() -> None:
    """Each new value once; one that cannot be read any more ends the watch without an error."""
    values = iter([5.0, 5.0, 6.0, 6.0, 8.0])

    class Failing:
        def joules(self) -> float:
            try:
                return next(values)
            except StopIteration as error:
                raise OSError("gone") from error

    watch = energy.Watch(Failing())  # type: ignore[arg-type]
    watch.start()
    watch.join()
    watch.stop()
    assert [5.0, 6.0, 8.0] == [joules for _, joules in watch.moves]


class Driver:
    """Answers like libcuda on a made-up card, number for number; ``refuses`` are attributes it does not know."""

    SAYS = {1: 1024, 8: 49152, 12: 65536, 97: 232448, 111: 1024, 39: 2048, 81: 233472, 82: 65536, 106: 32, 10: 32}

    def __init__(self, refuses: tuple[int, ...] = (), devices: int = 1) -> None:
        self._refuses, self._devices = refuses, devices

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:
        return 0 if ordinal < self._devices else 101

    def cuDeviceGetAttribute(self, value: Any, number: int, handle: Any) -> int:
        value._obj.value = self.SAYS[number]
        return 1 if number in self._refuses else 0


def test_limits_of_blocks_are_the_driver_s_and_what_it_does_not_say_is_not_there() -> None:
    """Each number under its own name; an older driver and an absent device leave reasons, no guesses."""
    found = {one.name: one.value for one in capacity.counted("cuda:0", driver=Driver())}
    assert (1024, 65536, 49152, 232448, 1024) == tuple(
        found[f"limit.block.{name}"]
        for name in ("threads", "registers", "shared_bytes", "shared_most_bytes", "shared_reserved_bytes")
    )
    assert (2048, 32, 65536, 233472, 32) == (
        *(found[f"limit.processor.{name}"] for name in ("threads", "blocks", "registers", "shared_bytes")),
        found["count.warp_threads"],
    )
    older = {one.name: one for one in capacity.counted("cuda:0", driver=Driver(refuses=(111,)))}
    assert older["limit.block.shared_reserved_bytes"].value is None
    assert 1024 == older["limit.block.threads"].value
    assert all(one.value is None and "device 3" in one.note for one in capacity.counted("cuda:3", driver=Driver()))


def test_caches_and_cores_are_the_kernel_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads on one core; instructions' caches are none of data; nothing is guessed where nothing is said."""
    monkeypatch.setattr(capacity.os, "sched_getaffinity", lambda _: {4, 5})
    levels = (("index0", "Data", "1", "32K", "4-5"), ("index1", "Instruction", "1", "64K", "4-5"),
              ("index2", "Unified", "2", "1M", "4-5"), ("index3", "Unified", "3", "96M", "0-5,8"))  # fmt: skip
    for number in (4, 5):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list").write_text("4-5\n")
    for index, kind, level, size, shared in levels:
        place = tmp_path / "cpu4" / "cache" / index
        place.mkdir(parents=True)
        for name, text in (("type", kind), ("level", level), ("size", size), ("shared_cpu_list", shared),
                           ("coherency_line_size", "64")):  # fmt: skip
            (place / name).write_text(text + "\n")
    found = {one.name: one.value for one in capacity.counted("cpu", tmp_path)}
    assert {"cache.first_level_bytes": 32 << 10, "cache.second_level_bytes": 1 << 20, "cache.line_bytes": 64.0,
            "count.last_level_sharers": 2.0, "count.cores": 1.0} == found  # fmt: skip
    assert {None} == {one.value for one in capacity.counted("cpu", tmp_path / "nothing")}


def test_a_machine_measured_before_is_completed_by_what_can_be_read(tmp_path: Path) -> None:
    """Facts of an older version lack what is read at once; measured ones stay as they were, unmeasured ones stay so."""
    name, versions = identity("cpu")
    key = fingerprint("cpu", name, versions)
    old = fact("bandwidth.copy.dram_GBps", "GB/s", [7.0])
    own = Machine(device="cpu", name=name, fingerprint=key, versions=versions, facts=(old,), measured_at=1.0)
    store.keep(own, tmp_path)
    facts = store.known("cpu", tmp_path).facts
    assert old == facts[0] and {"count.cores", "cache.line_bytes"} <= {one.name for one in facts}
    assert () == store.known("cpu", tmp_path / "other").facts


def test_products_that_a_processor_is_slow_at_are_measured_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small product says which sizes take too long: at a GFLOP a second 1536 cubed would take 7 s, six times over."""
    speed = {torch.float32: 0.09, torch.float64: 0.01, torch.bfloat16: 0.001}
    asked = []

    def products(dtype: torch.dtype, side: int, runs: int) -> list[float]:
        asked.append((dtype, side))
        return [speed[dtype]] * runs

    monkeypatch.setattr(cpu, "_products", products)
    found = cpu._gemm(2)
    assert ["torch.mm of 1536 cubed", "torch.mm of 768 cubed", "torch.mm of 384 cubed"] == [f.note for f in found]
    assert [0.09, 0.01, 0.001] == [f.value for f in found]
    assert (torch.bfloat16, 768) not in asked


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are instruction sets of x86")
@pytest.mark.parametrize(("march", "register"), [("x86-64-v2", "xmm"), ("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")])
def test_a_processor_is_measured_with_vectors_of_its_own_width(tmp_path: Path, march: str, register: str) -> None:
    """Wider ones are taken apart lane by lane: a peak was 17 times too low, and bounds with it too generous."""
    text = tmp_path / "cpu.s"
    command = [cpp.compiler(), *cpp.FLAGS, f"-march={march}", "-S", "-o", str(text), str(cpu.SOURCE)]
    subprocess.run([part for part in command if part not in ("-march=native", "-shared")], check=True)
    bodies = re.findall(r"^peak_simd_f32\._omp_fn\.0:\n(.*?)\.cfi_endproc", text.read_text(), re.DOTALL | re.MULTILINE)
    assert 1 == len(bodies)
    fused = (
        re.findall(r"\bvfmadd\w+\s+(.*)", bodies[0])
        if march != "x86-64-v2"
        else re.findall(r"\bmulps\s+(.*)", bodies[0])
    )
    assert [register] * 12 == [register for operands in fused if operands.count(f"%{register}") >= 2]
    assert 12 == len(fused), "one that names memory waits for what was stored"
