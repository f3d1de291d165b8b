# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a call beyond its inputs and outputs, read from outside the program.

On a CPU the kernel counts: the high-water mark of a process (VmHWM of /proc/PID/status) is set back to what is
resident before a call (5 written to /proc/PID/clear_refs) and read after it. The programs come from a zygote whose C
library maps each block of 64 KiB or more by itself and unmaps it when it is freed: what is resident is in use. On CUDA
the driver counts what is left of the device, asked a thousand times a second while the device is the judge's;
allocators there hand memory back late and in blocks, so blocks are what is counted.
"""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from kernelwright import sandbox
from kernelwright.judge.also.scene import STAGE, Contender, Scene
from kernelwright.judge.child import Zygote
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program

CALLS = 5
"""Calls after the first two: a program may settle into its buffers, and the largest peak counts."""
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""For glibc (mallopt(3)), read when the zygote starts."""
LOOK_S = 0.001
RESET = "5"
"""The kernel's word for: set the high-water mark back (proc(5))."""


def taken(scene: Scene) -> list[tuple[str, str]]:
    """In bytes, of every contender: ``memory.PROGRAM.peak_bytes`` beyond inputs and outputs during one call,
    ``kept_bytes`` that its first calls left behind (caches, compiled code), ``loaded_bytes`` before them (weights)."""
    zygote = scene.programs.fresh(AT_ONCE)
    try:
        return scene.each("memory", lambda contender: _peak(scene, contender, zygote))
    finally:
        zygote.close()


def _peak(scene: Scene, contender: Contender, zygote: Zygote) -> dict[str, float]:
    folder = scene.folder(contender, scene.cache)
    with scene.alone():
        before = _left(scene)
        own, includes = contender.own, contender.includes
        started = scene.programs.start(zygote, scene.device, folder, contender.seconds, own, includes=includes)
        with scene.loaded(contender, started) as program:
            look = _on_processor if scene.device == "cpu" else _on_device
            found = look(scene, program, before)
            scene.first_call(program)
            scene.checked(program)
    return found


def _on_processor(scene: Scene, program: Program, before: int) -> dict[str, float]:
    """What it keeps after two calls, and how far each later one rises above what was resident then."""
    loaded = sandbox.resident_bytes(program.pid)[0]
    for _ in range(2):
        scene.first_call(program)
    program.window([])  # a program is stopped while it still frees the results of its last window
    kept = sandbox.resident_bytes(program.pid)[0] - loaded
    risen = 0
    for _ in range(CALLS):
        try:
            Path(f"/proc/{program.pid}/clear_refs").write_text(RESET, encoding="ascii")
        except OSError as error:
            raise ChildFailure(STAGE, f"its high-water mark cannot be set back ({error.strerror})") from error
        resident = _status_bytes(program.pid, "VmRSS:")
        scene.first_call(program)
        risen = max(risen, _status_bytes(program.pid, "VmHWM:") - resident)
        program.window([])
    peak, first = max(0, risen - _results_bytes(scene)), max(0, loaded - program.born_with)
    return {"peak_bytes": float(peak), "kept_bytes": float(max(0, kept)), "loaded_bytes": float(first)}


def _on_device(scene: Scene, program: Program, before: int) -> dict[str, float]:
    """What is gone from the device at the worst moment, less what was gone before the first call: blocks that the
    allocator keeps are in it, so nothing is left over to be called kept."""
    start, over = _left(scene), threading.Event()
    least = [start]

    def look() -> None:
        while not over.wait(LOOK_S):
            least[0] = min(least[0], _left(scene))

    watcher = threading.Thread(target=look, name="peak")
    watcher.start()
    try:
        for _ in range(CALLS + 1):
            scene.first_call(program)
    finally:
        over.set()
        watcher.join()
    used = start - min(least[0], _left(scene))
    return {"peak_bytes": float(max(0, used - _results_bytes(scene))), "loaded_bytes": float(max(0, before - start))}


def _left(scene: Scene) -> int:
    """Free memory of the device, as the driver says; 0 for a processor."""
    return int(torch.cuda.mem_get_info(scene.bench.device)[0]) if scene.device != "cpu" else 0


def _results_bytes(scene: Scene) -> int:
    """What a call returns lies in the program's own memory until it is collected."""
    instance = scene.point.instance
    return sum(spec.nbytes() for spec in instance.out_specs) + sum(spec.nbytes() for _, spec in instance.gradients)


def _status_bytes(pid: int, field: str) -> int:
    """A size in /proc/PID/status. Raises ChildFailure where it is not there (any more)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        raise ChildFailure(STAGE, "it ended while its memory was looked at") from error
    found = [line.split()[1] for line in lines if line.startswith(field)]
    if not found:
        raise ChildFailure(STAGE, f"the kernel gives no {field.rstrip(':')}")
    return int(found[0]) * 1024
