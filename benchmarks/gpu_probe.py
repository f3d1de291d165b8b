# SPDX-License-Identifier: Apache-2.0
"""What a CUDA machine allows: device memory shared across namespaces, launch overhead, NVML, clocks; prints JSON.

python benchmarks/gpu_probe.py
"""

import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch

from kernelwright.judge.buffers_cuda import CudaArena

SIZE = 64 << 20
UNSHARE = ("unshare", "--user", "--map-root-user")
PREFIXES = {
    "plain": [],
    "user": [*UNSHARE],
    "user+net": [*UNSHARE, "--net"],
    "user+ipc": [*UNSHARE, "--ipc"],
    "user+pid, old /proc": [*UNSHARE, "--pid", "--fork"],
    "user+pid, new /proc": [*UNSHARE, "--pid", "--fork", "--mount-proc"],
    "user+net+ipc+pid, new /proc": [*UNSHARE, "--net", "--ipc", "--pid", "--fork", "--mount-proc"],
    "nobody: user+net+ipc+pid, new /proc": [
        *("unshare", "--net", "--ipc", "--pid", "--fork", "--mount-proc", "--user"),
        *("--map-user=65534", "--map-group=65534"),
    ],
}


def child(number):
    """Attach what arrives on the inherited socket, check the pattern, write another."""
    with socket.socket(fileno=number) as line:
        message, fds, _, _ = socket.recv_fds(line, 64, 1)
        began = time.perf_counter()
        with CudaArena.attach(fds[0], int(message), 0) as arena:
            os.close(fds[0])
            attached = time.perf_counter() - began
            right = bool((arena.tensor == 7).all())
            arena.tensor.fill_(9)
            torch.cuda.synchronize()
            facts = {"right": right, "attach_s": attached, "uid": os.getuid(), "pid": os.getpid()}
            line.sendall(json.dumps(facts).encode())


def share(prefix):
    """One round trip with a child started under ``prefix``."""
    ours, theirs = socket.socketpair()
    free = torch.cuda.mem_get_info()[0]
    began = time.perf_counter()
    with CudaArena.create(SIZE, 0) as arena:
        created = time.perf_counter() - began
        arena.tensor.fill_(7)
        torch.cuda.synchronize()
        os.set_inheritable(theirs.fileno(), True)
        argv = [*prefix, sys.executable, os.path.abspath(__file__), "--child", str(theirs.fileno())]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        theirs.close()
        socket.send_fds(ours, [str(arena.size).encode()], [arena.fd])
        ours.settimeout(60)
        try:
            found = json.loads(ours.recv(4096) or b"{}")
        except OSError as error:
            found = {"failed": str(error)}
        stderr = process.communicate(timeout=60)[1]
        found["seen_here"] = bool((arena.tensor == 9).all())
        found["create_s"], found["returncode"] = created, process.returncode
        if process.returncode:
            found["stderr"] = stderr[stderr.rfind("\nkernelwright.errors") :].strip()[-400:]
    torch.cuda.synchronize()
    found["leaked_bytes"] = free - torch.cuda.mem_get_info()[0]
    return found


def host_cost(function, count=2000):
    """Microseconds of host time per call, and per call until the device is done, back to back."""
    for _ in range(20):
        function()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        function()
    host = time.perf_counter() - began
    torch.cuda.synchronize()
    return {"host_us": 1e6 * host / count, "done_us": 1e6 * (time.perf_counter() - began) / count}


def launches():
    """The cost of starting work: torch, Triton, a CUDA graph, and a bare synchronisation."""
    import triton
    import triton.language as tl

    @triton.jit
    def add_one(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)

    x = torch.zeros(1024, device="cuda")
    y = torch.empty_like(x)
    found = {
        "torch_relu": host_cost(lambda: torch.relu(x)),
        "torch_empty": host_cost(lambda: torch.empty(1024, device="cuda")),
        "triton": host_cost(lambda: add_one[(1,)](x, y, 1024, 1024)),
    }
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_one[(1,)](x, y, 1024, 1024)
    found["graph"] = host_cost(graph.replay)
    samples = []
    for _ in range(200):
        began = time.perf_counter()
        torch.cuda.synchronize()
        samples.append(1e6 * (time.perf_counter() - began))
    found["synchronize_us"] = statistics.median(samples)
    return found


def management():
    """Clocks, power and the energy counter, where NVML answers."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    return {
        "sm_MHz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_MHz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "power_W": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "energy_mJ": nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "throttle": nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
    }


def attempt(function, *arguments):
    """The result, or what went wrong."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 (what fails is what is being asked)
        return {"failed": f"{type(error).__name__}: {error}"[-600:]}


def main():
    """Command line."""
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]))
        return
    torch.zeros(1, device="cuda")
    found = {"share": {name: attempt(share, prefix) for name, prefix in PREFIXES.items()}}
    found["launches"] = attempt(launches)
    found["management"] = attempt(management)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
