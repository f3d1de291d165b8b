# SPDX-License-Identifier: Apache-2.0
"""A confined program that runs one candidate a few times and says what it saw; advisory, never a result.

``python -m kernelwright.judge.profile.replay REQUEST`` with a JSON object: ``mode`` is ``trace`` (print one JSON line
of facts), ``energy`` (energy of a call alone), or one of two for a counter tool around this process: ``counters`` (one
call between profiler start and stop) and ``perf`` (calls between two words to the pipe ``control``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.judge import skeletons
from kernelwright.judge.calibration import energy
from kernelwright.judge.load import waited_us
from kernelwright.judge.measure import clock

MARK = "kernelwright-call"
TRACED = 3
SECONDS = 0.3
ENERGY_SECONDS = 0.6
"""Six readings of a counter that moves every 100 ms."""
MOST = 200


class _Counter(TorchDispatchMode):
    """Counts the operators torch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        return func(*args, **(kwargs or {}))


def main() -> None:
    """Load, run, report on standard output."""
    request = json.loads(sys.argv[1])
    device = request["device"]
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    fresh = _load(request, device)
    call = fresh()
    with torch.no_grad():
        if request["mode"] == "counters":
            found = _counters(call)
        elif request["mode"] == "perf":
            found = _between(call, Path(request["control"]))
        elif request["mode"] == "energy":
            found = _energy(call, device)
        else:
            found = _trace(call, device, Path(request["trace"]))
            # What a second object does at its first call is its own; the rest of the very first is loading, compiling.
            found |= {"load_us": found["first_us"], "first_us": _first_us(fresh(), device)}
    sys.stdout.write("\n" + json.dumps({"replay": found}) + "\n")


def _load(request: dict[str, Any], device: str) -> Callable[[], Callable[[], object]]:
    """What makes the candidate anew and returns one call of it."""
    data = torch.load(request["data"], weights_only=True, map_location=device)
    path, _, name = request["entry"].partition("::")
    file = Path.cwd() / path
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)

    def fresh() -> Callable[[], object]:
        arguments = skeletons.unflatten(request["init_args"], data["init"])
        keywords = skeletons.unflatten(request["init_kwargs"], data["init"])
        made = getattr(module, name)(*arguments, **keywords)
        if isinstance(made, torch.nn.Module):
            made.to(device)
            made.train(request["training"])
            made.load_state_dict(dict(data["state"]), strict=True)
        value = skeletons.unflatten(request["arguments"], data["leaves"])
        arguments, keywords = (value["args"], value["kwargs"]) if isinstance(value, dict) else (value, {})
        return lambda: made(*arguments, **keywords)

    return fresh


def _synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def _us(start: int) -> float:
    return (clock() - start) / 1e3


def _first_us(call: Callable[[], object], device: str) -> float:
    """Microseconds of the first call of an object, on a device that is awake."""
    if device != "cpu":
        torch.ones(1, device=device).add_(1)
    _synchronise(device)
    start = clock()
    call()
    _synchronise(device)
    return _us(start)


def _counters(call: Callable[[], object]) -> dict[str, float]:
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return {}


def _between(call: Callable[[], object], control: Path) -> dict[str, float]:
    """Calls for ``SECONDS``, with counting switched on for them alone."""
    call()
    start, calls = clock(), 0
    with control.open("w") as pipe:
        pipe.write("enable\n")
        pipe.flush()
        while _us(start) < SECONDS * 1e6 or calls < 2:
            call()
            calls += 1
        pipe.write("disable\n")
    return {"counted_calls": float(calls)}


def _trace(call: Callable[[], object], device: str, path: Path) -> dict[str, float]:
    found = {"first_us": _first_us(call, device)}
    start = clock()
    call()
    _synchronise(device)
    count = max(3, min(MOST, int(SECONDS * 1e6 / max(1.0, _us(start)))))
    found |= _steady(call, device, count)
    if device == "cpu":
        with _Counter() as counter:
            call()
        return found | {"operators": float(counter.operators)}
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profiler:
        call()
        torch.cuda.synchronize(device)
        for _ in range(TRACED):
            with torch.profiler.record_function(MARK):
                call()
            torch.cuda.synchronize(device)
    profiler.export_chrome_trace(str(path))
    return found | _energy(call, device)


def _energy(call: Callable[[], object], device: str) -> dict[str, float]:
    """Millijoules a call and watts while calls follow each other, idle power included, by the driver's counter."""
    try:
        joules, seconds, calls = energy.spend(energy.Meter(device), device, call, ENERGY_SECONDS)
    except OSError:
        return {}
    return {"energy_mJ": joules / calls * 1e3, "watts": joules / seconds}


def _steady(call: Callable[[], object], device: str, count: int) -> dict[str, float]:
    """Microseconds a call and of the host alone; CPU time and page faults a call."""
    for _ in range(2):
        call()
    _synchronise(device)
    runs = []
    for _ in range(3):
        waited, ran = waited_us(os.getpid()), _ran()
        before, start = resource.getrusage(resource.RUSAGE_SELF), clock()
        for _ in range(count):
            call()
        host = _us(start)
        _synchronise(device)
        total, after = _us(start), resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        used = used * 1e6 + waited_us(os.getpid()) - waited  # ready to run counts as busy: other load is not its fault
        runs.append((total, host, used, float(after.ru_minflt - before.ru_minflt), _together(ran, _ran())))
    total, host, used, faults, together = min(runs)
    found = {"time_us": total / count, "host_us": host / count}
    if device == "cpu":
        found |= {"busy_threads": together or used / total, "page_faults": faults / count}
    return found


def _ran() -> dict[str, int]:
    """Nanoseconds on a processor of each thread of this process; nothing where the kernel does not say."""
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            found[path.parent.name] = int(path.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue
    return found


def _together(before: dict[str, int], after: dict[str, int]) -> float:
    """How many threads work at a time: all their processor time over the busiest one's; 0 where it is not known.

    Unlike time over the wall's clock this is the same beside other load: what a thread waits for a core is in neither.
    """
    spent = [after[name] - before.get(name, 0) for name in after]
    return sum(spent) / max(spent) if spent and max(spent) > 0 else 0.0


if __name__ == "__main__":
    main()
