# SPDX-License-Identifier: Apache-2.0
"""How a judge starts confined programs: two zygotes, the limits and the environment of each, caches that begin warm.

torch.compile costs a fresh process 22 s for a small program on two cores: 3.5 s of imports, 16 s in which its C++
back end finds out what the compiler and the processor can do, and the rest for the program. Programs that may
compile therefore come from a zygote that has those imports behind it, and begin with a copy of a cache in which the
second question is answered. That cache was filled by a program of ours, so it holds nothing of anybody's task. Most
of that question needs not be put at all where our program, compiled for what the processor says it has, runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import torch

from kernelwright import sandbox
from kernelwright.errors import JudgeFailed
from kernelwright.judge import headers, health, lanes, measure
from kernelwright.judge.child import Zygote
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.load import idle_share, waiting_policy
from kernelwright.judge.program import Program
from kernelwright.neighbours import tells
from kernelwright.sandbox.forked import Fork
from kernelwright.sandbox.lease import Lease

T = TypeVar("T")

MEMORY = 12 << 30
PRIMING_SECONDS = 120.0
PRIMER = """import torch
from torch import nn


class Primer(nn.Module):
    def __init__(self):
        super().__init__()
        values = torch.ones(64, 64)
        with torch.no_grad():
            torch.compile(lambda x: torch.softmax(x, -1) + x.sum(-1, keepdim=True), dynamic=False)(values)
"""
UNSEEN = {"CUDA_VISIBLE_DEVICES": ""}
"""Of programs on a CPU, which can reach no GPU. Torch's compiler looks for one, and after a fork of a process that did
so too it failed: on the host of an H200 nothing was compiled for its CPU (torch 2.11)."""
INTERPRETED = {"TRITON_INTERPRET": "1"}
"""Triton has an interpreter for a CPU, of which it reads when it is imported: by torch's compiler, before a program is
loaded. One that asked for it in its first line, as everybody does, called compiled functions from it, and failed."""
NO_FOLDER = {"TORCHINDUCTOR_CACHE_DIR": "/"}
"""Of programs that may write nowhere. torch.utils.checkpoint, custom operators and torch.optim import torch's compiler,
which makes a folder for its cache at import, or looks for a temporary one: each such program failed. One that is there
need not be made, and what would be written into this one is refused as before."""
NO_HEADERS = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
"""Where torch puts precompiled headers is settled at import: in the zygote, for a folder that its forks may not write.
See ``headers`` for those that they read."""
TRUSTING = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
"""Read at import too: AVX2 and AVX-512 are not tried with a compilation of torch's headers each (10 s on two cores)."""
PLAIN, DEVICE = ("torch",), ("torch", "kernelwright.judge.triton_ready")
MOST_COMPILING = 8
"""Threads in which the compiler of one baseline prepares its choices for a device: with 20 of them for a product, its
first call took 46 s in one thread, 18 s in 8 and 20 s in 16, or in 16 processes (H200, torch 2.11)."""
COMPILER = (
    "torch", "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache",
    "kernelwright.judge.isa_trusted",
)  # fmt: skip


class Programs:
    """Starts programs on one machine; ``cache`` is where compiled code may be kept between judges."""

    def __init__(self, threads: int, cache: Path) -> None:
        self.threads = threads
        self.waiting: dict[str, str] = {}
        """How OpenMP threads of all programs wait, decided when the first one starts."""
        self._imports: set[str] = set()
        self._cache = cache
        self._probes = not (cache / "primed").is_dir() and (cache / "primed-probing").is_dir()
        """The processor's word is not enough here: the primer failed by it before."""
        self._zygotes: dict[bool, Zygote] = {}
        self._lock = threading.Lock()
        self._starting = {True: threading.Lock(), False: threading.Lock()}
        """One zygote does not wait for the other: that which compiles takes 5 to 10 s to import what it needs."""
        self._priming: threading.Thread | None = None
        self._primer: Program | None = None
        self._loading: list[tuple[threading.Thread, Program]] = []
        """Those that load while nobody has a share for them."""

    def close(self) -> None:
        """End every program."""
        for zygote in self._zygotes.values():
            zygote.close()

    def allow(self, imports: Iterable[str]) -> None:
        """Programs started from now on may read these folders, which references import from: never a whole home, and
        none that holds task folders, where cases and decoys are written down."""
        self._imports |= set(readable(imports))

    def prime(self) -> None:
        """Start what programs that compile on a CPU will need, in the background; asking again does nothing."""
        with self._lock:
            if self._priming is None:
                self._priming = threading.Thread(target=self._prime, daemon=True)
                self._priming.start()

    def in_background(self) -> list[tuple[threading.Thread, Program]]:
        """Each program that nobody asked to be timed, and the thread that waits for it."""
        primer, loading = self._primer, list(self._loading)
        return loading if primer is None or self._priming is None else [(self._priming, primer), *loading]

    def aside(self, program: Program, lease: Lease) -> Program:
        """The program, which on a device loads without a share, and stands still while somebody is alone. With one,
        each load beside three other judges on an H200 kept them from timing anything for 0.8 s, and one that hangs
        for as long as a load may take."""
        if program.device != "cpu":
            program.loads = functools.partial(self._without_share, program, lease)
        return program

    @contextlib.contextmanager
    def _without_share(self, program: Program, lease: Lease) -> Iterator[None]:
        mine = threading.current_thread(), program
        self._loading.append(mine)  # before the share is given back: who is alone next finds it
        try:
            with lease.lent():
                yield
        finally:
            self._loading.remove(mine)

    def fork(
        self,
        device: str,
        folder: Path,
        seconds: float,
        own: Path | None,
        *,
        in_threads: bool = False,
        includes: Path | None = None,
    ) -> Program:
        """A confined program in ``folder``. ``own`` is a folder that it may write, and keep compiled code in, alone;
        ``in_threads``: torch's compiler may prepare its choices for a device in several; ``includes``: where the C++
        compiler looks for headers first."""
        if device != "cpu":
            health.make_room(torch.device(device))
        if own is None or device != "cpu":  # a fork of a process that has looked at a GPU cannot use it
            plain = self._zygote(compiles=False, device=device)
            compiling = min(self.threads, MOST_COMPILING) if in_threads else 1
            return self.start(plain, device, folder, seconds, own, compiling=compiling, includes=includes)
        self.prime()
        assert self._priming is not None
        self._priming.join()
        if self._seed.is_dir() and not (own / "inductor").exists():
            own.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self._seed, own / "inductor")
        ready = None if self._probes else self._headers
        zygote = self._zygote(compiles=True)
        return self.start(zygote, device, folder, seconds, own, headers=ready, includes=includes)

    def _zygote(self, *, compiles: bool, device: str = "cpu") -> Zygote:
        with self._lock:
            if not self.waiting:
                self.waiting = waiting_policy(idle_share())
        with self._starting[compiles]:
            if compiles not in self._zygotes:
                answers = UNSEEN | INTERPRETED | NO_HEADERS | ({} if self._probes else TRUSTING)
                plain = PLAIN if device == "cpu" else DEVICE
                preload, env = (COMPILER, answers) if compiles else (plain, {})
                self._zygotes[compiles] = Zygote.start(preload, clock=measure.clock, env=self.waiting | env)
            return self._zygotes[compiles]

    @property
    def _seed(self) -> Path:
        return self._cache / ("primed-probing" if self._probes else "primed")

    @property
    def _headers(self) -> Path:
        return headers.folder(self._cache)

    def _is_primed(self) -> bool:
        """Whether a primer has run here, and made the headers of this torch; where it probes, it makes none."""
        return self._seed.is_dir() and (self._probes or self._headers.is_dir())

    def _prime(self) -> None:
        """Fill the cache that others begin with. Without it they only take longer, so its failures are nobody's."""
        if self._primed() or self._probes:
            return
        with self._starting[True]:
            self._zygotes.pop(True).close()
        self._probes = True
        self._primed()

    def _primed(self) -> bool:
        """Run the primer, unless one has run before; whether it ran through."""
        zygote = self._zygote(compiles=True)
        if self._is_primed():
            return True
        with _one_at_a_time(self._cache / "priming.lock"):  # judges share caches: one primes, others find it done
            return self._is_primed() or self._run_primer(zygote)

    def _run_primer(self, zygote: Zygote) -> bool:
        folder = self._cache / "priming"
        own, made = folder / "own", folder / "own" / "headers"
        with contextlib.suppress(ChildFailure, JudgeFailed, OSError):
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "source").mkdir(parents=True)
            (folder / "source" / "primer.py").write_text(PRIMER, encoding="utf-8")
            making = None if self._probes else made
            with self.start(zygote, "cpu", folder / "source", PRIMING_SECONDS, own, headers=making) as primer:
                self._primer = primer
                primer.load("primer.py::Primer")
            made.mkdir(exist_ok=True)  # empty where this torch, or this compiler, has none: nobody tries again
            if not self._probes and not self._headers.exists():
                made.rename(self._headers)
            if not self._seed.exists():
                (own / "inductor").rename(self._seed)
        self._primer = None
        shutil.rmtree(folder, ignore_errors=True)
        return self._is_primed()

    def fresh(self, env: Mapping[str, str] | None = None) -> Zygote:
        """A zygote nobody has used: an interpreter that has imported torch, and nothing that compiles. The caller's to
        close. ``env``: more of what libraries read when they are loaded."""
        return Zygote.start(("torch",), clock=measure.clock, env=self.waiting | NO_HEADERS | dict(env or {}))

    def forked(self, work: Callable[[], T], relayed: tuple[type[Exception], ...]) -> Fork[T]:
        """``work`` in a fork of this process, where programs that do not compile themselves can be started. They come
        from the same zygote, which ends them when the fork ends."""
        zygote = self._zygote(compiles=False)
        with zygote.lend() as channel:

            def inside() -> T:
                self._lock, self._starting = threading.Lock(), {True: threading.Lock(), False: threading.Lock()}
                self._zygotes = {False: zygote.lent(channel)}
                torch.set_num_threads(1)
                lanes.forked()
                torch.ones(1, requires_grad=True).sum().backward()  # fails where autograd had threads, as with a GPU
                return work()

            return Fork(inside, relayed)

    def start(
        self,
        zygote: Zygote,
        device: str,
        folder: Path,
        seconds: float,
        own: Path | None,
        *,
        headers: Path | None = None,
        compiling: int = 1,
        includes: Path | None = None,
    ) -> Program:
        """``fork``, from a zygote of one's own choice. ``headers``: a folder of them; see ``headers``."""
        limits = sandbox.Limits(
            seconds=seconds, memory_bytes=MEMORY, processes=512, file_bytes=1 << 30, output_bytes=1 << 20
        )
        env = {"OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads), **self.waiting}
        env |= (UNSEEN | INTERPRETED if device == "cpu" else {}) | NO_FOLDER
        if own is not None:
            own.mkdir(parents=True, exist_ok=True)
            (own / "tmp").mkdir(exist_ok=True)
            seen = Path(sandbox.OWN) if zygote.own_root else own
            if headers and headers.is_relative_to(own):
                headers = seen / headers.relative_to(own)
            env |= {
                "TORCHINDUCTOR_CACHE_DIR": str(seen / "inductor"),
                "TRITON_CACHE_DIR": str(seen / "triton"),
                # Workers would be programs that nothing stops between windows. Baselines have none all the same.
                "TORCHINDUCTOR_COMPILE_THREADS": str(compiling),
                "TMPDIR": str(seen / "tmp"),
                "HOME": str(seen),
            }
        env |= {"CPATH": str(includes)} if includes else {}
        readable: list[Path | str] = [sys.prefix, sys.base_prefix, *sorted(self._imports)]
        readable += [place for place in (headers, includes) if place and place.is_dir()]
        return zygote.fork(
            folder,
            device=device,
            limits=limits,
            env=env,
            readable=readable,
            headers=headers or "",
            writable=() if own is None else (own,),
            execute=own is not None,
            threads=self.threads,
        )


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold a lock that the kernel drops with its holder; nothing is held where there can be no such file."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def readable(imports: Iterable[str]) -> tuple[str, ...]:
    """Those of a reference's folders of imports that candidates may read."""
    return tuple(folder for folder in imports if not tells(Path(folder)))
