# SPDX-License-Identifier: Apache-2.0
"""judge/entrants.py: a baseline that cannot be started is missed aloud; eager is sized by its calls alone."""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelwright import sandbox
from kernelwright.candidate import Candidate
from kernelwright.errors import DeviceLost, DiskFull, JudgeFailed, KernelwrightError, NotEnoughMemory
from kernelwright.judge import entrants as entrants_module
from kernelwright.judge import health
from kernelwright.judge.bench import Bench
from kernelwright.judge.child import Zygote
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.entrants import Entrants
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program
from kernelwright.judge.programs import Programs
from kernelwright.trial import Rejected

COMPILED = Candidate(task="t", language="torch", entry="m.py::M", sources=(("m.py", "M = 1\n"),), proposer="x")


class NoRoom:
    """Programs of a judge whose disk is full: their folders cannot be made."""

    def fork(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - it never returns
        raise OSError(errno.ENOSPC, "No space left on device", "/state/baselines")


def begun(state: Path) -> tuple[Entrants, Entrant]:
    """A compiled baseline that was begun there."""
    entrants = Entrants(cast(Programs, NoRoom()), state, state)
    entrant = Entrant(name="compile", program=None, failure="", warming=None)
    bench = cast(Bench, SimpleNamespace(timed=SimpleNamespace(instance=None), device="cpu", eager_us=100.0))
    entrants._begin(bench, entrant, COMPILED, state, state / "own", [])
    return entrants, entrant


def test_a_baseline_without_room_says_so_in_the_conditions(tmp_path: Path) -> None:
    """Ended by an error of the system it was left out without a word, and the speedup over eager alone flattered."""
    _, entrant = begun(tmp_path)
    assert "No space left" in entrant.failure and entrant.program is None


@pytest.mark.parametrize("free", [1 << 10, 1 << 40])
def test_no_verdict_without_a_baseline_that_a_full_disk_kept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """Where the disk is full indeed."""
    entrants, entrant = begun(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    with pytest.raises(DiskFull) if free < 1 << 20 else contextlib.nullcontext():
        entrants.blame_disk([entrant])


class Clocked:
    """A program whose windows take ``empty`` microseconds, and ``each`` more for every call."""

    watched = False

    def __init__(self, empty: float, each: float) -> None:
        self.empty, self.each, self.most = empty, each, 0

    def window(self, order: list[int], *, grad: bool = False) -> Any:  # noqa: ANN401 - stands for a window
        self.most = max(self.most, len(order))
        return SimpleNamespace(call_us=self.empty + self.each * len(order), aliases=(), whereabouts=None)


def test_eager_is_sized_without_what_an_empty_window_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is several calls long; yet a tenth of the window is the calls', whatever the clock says."""
    monkeypatch.setattr(entrants_module, "_bind", lambda *_: None)
    for empty, each, expected in ((350.0, 66.0, 66.0), (350.0, 0.0, 350.0 * 0.1 / 3)):
        bench = _bench("cpu")
        Entrants._size_up(cast(Bench, bench), cast(Program, Clocked(empty, each)), [])
        assert bench.sized and expected == pytest.approx(bench.eager_us)


@pytest.mark.parametrize(("call_bytes", "calls"), [(1 << 20, 64), (1 << 28, 4), (1 << 30, 3)])
def test_short_calls_on_a_gpu_are_sized_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch, call_bytes: int, calls: int
) -> None:
    """What varies from window to window there is more than three calls; no more are bound than take 1 GiB."""
    monkeypatch.setattr(entrants_module, "_bind", lambda *_: None)
    program = Clocked(350.0, 66.0)
    Entrants._size_up(cast(Bench, _bench("cuda:0", call_bytes)), cast(Program, program), [])
    assert calls == program.most


def test_a_call_that_takes_much_of_a_device_is_sized_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is bound to is kept."""
    monkeypatch.setattr(entrants_module, "_bind", lambda *_: None)
    bench, program = _bench("cuda:0", 12 << 30), Clocked(350.0, 66.0)
    bench.tight = True
    Entrants._size_up(cast(Bench, bench), cast(Program, program), [])
    assert program.most == 1


def _bench(device: str, call_bytes: int = 1 << 20) -> SimpleNamespace:
    return SimpleNamespace(
        tight=False,
        eager_us=100.0,
        sized=False,
        contract=SimpleNamespace(gradients=False),
        timed=SimpleNamespace(instance=SimpleNamespace(eager=lambda leaves, state: [])),
        device=torch.device(device),
        call_bytes=call_bytes,
    )


@pytest.mark.parametrize("failure", [torch.OutOfMemoryError("full"), NotEnoughMemory("full")])
def test_on_a_full_device_the_next_try_has_half_the_call_sets_and_the_last_one(
    failure: torch.OutOfMemoryError | NotEnoughMemory, tmp_path: Path
) -> None:
    """All programs are bound anew; where one was too many, or on the host, there is no next try."""
    entrants = Entrants(cast(Programs, None), tmp_path, tmp_path)
    bench: Any = SimpleNamespace(device=torch.device("cuda:0"), most_sets=None, entrants={})
    bench.plan = lambda spend, processes: SimpleNamespace(sets=bench.most_sets or 5)
    for name in ("eager", "compile"):
        bench.entrants[name] = Entrant(name=name, program=None, failure="", warming=None)
    assert "5 call sets" in entrants.again(bench, failure, first=True)
    assert (2, {}) == (bench.most_sets, bench.entrants)
    bench.most_sets = 4
    assert "4 call sets" in entrants.again(bench, failure, first=False)
    assert 1 == bench.most_sets
    with pytest.raises(type(failure)):
        entrants.again(bench, failure, first=False)
    bench.device, bench.most_sets = torch.device("cpu"), 5
    with pytest.raises(type(failure)):
        entrants.again(bench, failure, first=True)


@pytest.mark.parametrize(
    ("name", "sets", "most_sets", "again"),
    [("compile", 5, None, True), ("compile", 2, 2, True), ("compile", 1, 1, False), ("eager", 1, 1, True)],
)
def test_a_baseline_without_room_is_not_left_out_before_it_had_more(
    tmp_path: Path, name: str, sets: int, most_sets: int | None, again: bool
) -> None:
    """A speedup over the others would flatter; beside fewer call sets it may run. After that its failure is said, but
    for eager's: without it there is no judging, and that is for want of memory, not for a reference that fails."""

    class Full:
        def fork(self, *_: object, **__: object) -> Program:
            raise ChildFailure("smoke", "OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB")

    entrants = Entrants(cast(Programs, Full()), tmp_path, tmp_path)
    entrant = Entrant(name=name, program=None, failure="", warming=None)
    bench = _bench("cuda:0")
    bench.most_sets, bench.plan = most_sets, lambda spend, processes: SimpleNamespace(sets=sets)
    bench.timed = SimpleNamespace(instance=None)
    entrants._begin(cast(Bench, bench), entrant, COMPILED, tmp_path, tmp_path / "own", [])
    assert "Tried to allocate" in entrant.failure
    with pytest.raises(NotEnoughMemory) if again else contextlib.nullcontext():
        entrant.ready()


@pytest.mark.parametrize(
    ("device", "left", "outcome", "blamed"),
    [
        ("cuda:0", (3 << 30, 8 << 30), Rejected(stage="smoke", reason="CUDA error: out of memory", detail=""), True),
        ("cuda:0", (6 << 30, 11 << 30), Rejected(stage="smoke", reason="CUDA error: out of memory", detail=""), False),
        ("cuda:0", (3 << 30, 8 << 30), Rejected(stage="smoke", reason="ValueError: no", detail=""), False),
        ("cuda:0", (3 << 30, 8 << 30), None, False),
        ("cpu", (3 << 30, 8 << 30), Rejected(stage="smoke", reason="CUDA error: out of memory", detail=""), False),
    ],
)
def test_a_device_that_others_fill_is_not_the_fault_of_a_candidate(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    device: str,
    left: tuple[int, int],
    outcome: Rejected | None,
    blamed: bool,
) -> None:
    """3 GiB were left for it where eager takes 5; with 6 it is its own fault."""
    readings = iter(left)
    monkeypatch.setattr(health, "left_on", lambda device: next(readings))
    closed: list[str] = []
    program: Any = SimpleNamespace(close=lambda: closed.append("eager"))
    bench: Any = SimpleNamespace(device=torch.device(device), task=SimpleNamespace(name="large"))
    bench.entrants = {"eager": Entrant(name="eager", program=program, failure="", warming=None)}
    entrants = Entrants(cast(Programs, None), tmp_path, tmp_path)
    with pytest.raises(NotEnoughMemory, match="large") if blamed else contextlib.nullcontext():
        entrants.blame_device(bench, outcome)
    asked = device != "cpu" and outcome is not None and "memory" in outcome.reason
    assert (["eager"] if asked else []) == closed


class One:
    """Programs of a judge that has one to give, after ``wait``."""

    def __init__(self, zygote: Zygote, folder: Path, wait: threading.Event) -> None:
        self.zygote, self.folder, self.wait = zygote, folder, wait

    def fork(self, *_: object, **__: object) -> Program:
        self.wait.wait(20)
        limits = sandbox.Limits(
            seconds=60.0, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16
        )
        return self.zygote.fork(self.folder, device="cpu", limits=limits, threads=1)


@pytest.mark.parametrize("started", [True, False])
def test_a_baseline_that_is_still_warmed_is_ended_by_its_own_thread(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    """Two threads that close one program close descriptors twice: by then they are another file's."""
    (tmp_path / "slow.py").write_text("import time\nclass M:\n    def __init__(self):\n        time.sleep(60)\n")
    tmp_path.chmod(0o755)
    wait = threading.Event()
    monkeypatch.setattr(entrants_module, "load", lambda program, entry, instance: program.load("slow.py::M"))
    entrants = Entrants(cast(Programs, One(zygote, tmp_path, wait)), tmp_path, tmp_path)
    bench = cast(Bench, SimpleNamespace(timed=SimpleNamespace(instance=None), device="cpu", eager_us=100.0))
    entrant = Entrant(name="compile", program=None, failure="", warming=None)
    work = threading.Thread(target=entrants._begin, args=(bench, entrant, COMPILED, tmp_path, None, []))
    entrant.warming = work
    work.start()
    if started:
        wait.set()
        while entrant.program is None or entrant.program.leash._stood_at:
            time.sleep(0.01)
        time.sleep(0.2)  # it is asked to load
    entrant.close()
    wait.set()
    work.join(20)
    assert not work.is_alive() and entrant.program is None
    assert entrant.failure and "descriptor" not in entrant.failure


class Ill:
    """Programs of a judge that has none to give, for this reason."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def fork(self, *_: object, **__: object) -> Program:
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (JudgeFailed("the zygote died"), JudgeFailed, "the zygote died"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), DeviceLost, "illegal memory access"),
        (AssertionError(), None, "AssertionError"),
        (ValueError("a defect"), None, "a defect"),
    ],
)
def test_no_error_ends_the_thread_of_a_baseline_unsaid(
    tmp_path: Path, error: Exception, raised: type[KernelwrightError] | None, said: str
) -> None:
    """The machine's are raised by whoever waits for it, for no speedup is proved over the others alone; of any other
    the conditions of the proof speak."""
    entrants = Entrants(cast(Programs, Ill(error)), tmp_path, tmp_path)
    bench = cast(Bench, SimpleNamespace(timed=SimpleNamespace(instance=None), device="cpu", eager_us=100.0))
    entrant = Entrant(name="compile", program=None, failure="", warming=None)
    entrant.warming = threading.Thread(target=entrants._begin, args=(bench, entrant, COMPILED, tmp_path, None, []))
    entrant.warming.start()
    if raised is None:
        entrant.ready()
    else:
        for _ in range(2):
            with pytest.raises(raised):
                entrant.ready()
    assert said in entrant.failure and entrant.program is None


class Held:
    """A program that notes its end."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_baseline_that_could_not_be_bound_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alive but not bound it made every later judgement of the task fail."""

    def no_room(*_: object) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    held = Held()
    monkeypatch.setattr(entrants_module, "load", lambda *_: None)
    monkeypatch.setattr(entrants_module, "_bind", no_room)
    entrants = Entrants(cast(Programs, SimpleNamespace(fork=lambda *_, **__: held)), tmp_path, tmp_path)
    bench: Any = SimpleNamespace(
        timed=SimpleNamespace(instance=SimpleNamespace(giver=SimpleNamespace(keeps=True))),
        device=torch.device("cuda"),
        eager_us=100.0,
        eager_shared=frozenset(),
        eager_aliases=frozenset(),
        plan=lambda *_: SimpleNamespace(sets=2),
    )
    entrant = Entrant(name="compile", program=None, failure="", warming=None)
    entrants._begin(cast(Bench, bench), entrant, COMPILED, tmp_path, None, [])
    assert held.closed and entrant.program is None and "out of memory" in entrant.failure
    with pytest.raises(KernelwrightError, match="ran out of memory"):
        entrant.ready()


def test_a_baseline_that_the_machine_kept_away_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that failed by itself is not; and what cannot be written is not left behind as one that never failed."""
    begun_again: list[str] = []
    entrants = Entrants(cast(Programs, None), tmp_path, tmp_path)
    monkeypatch.setattr(entrants_module.baselines, "program", lambda task, kind: COMPILED)
    monkeypatch.setattr(entrants_module, "build", lambda *_: tmp_path)
    monkeypatch.setattr(entrants, "_begin", lambda bench, entrant, *_: begun_again.append(entrant.name))
    instance = SimpleNamespace(draw=lambda *_: [])
    bench: Any = SimpleNamespace(
        entrants={}, task=SimpleNamespace(digest=lambda: "t"), device="cpu", seed=1, call_bytes=1,
        timed=SimpleNamespace(instance=instance, as_given=None),
    )  # fmt: skip
    first = entrants.of(bench, "eager")
    assert first is entrants.of(bench, "eager") and ["eager"] == begun_again
    first.failure = "load: it says so"
    assert first is entrants.of(bench, "eager")
    first.fault = JudgeFailed("the zygote died")
    assert first is not entrants.of(bench, "eager") and ["eager"] * 2 == begun_again
    instance.draw = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        entrants.of(bench, "compile")
    assert {"eager"} == set(bench.entrants)


def test_a_baseline_has_a_process_of_its_own_for_every_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where it compiles nothing and is small, and on a device after some; the first race takes the process
    that is there."""
    begun: list[str] = []

    def begin(bench: Any, entrant: Entrant, *_: object) -> None:
        begun.append(entrant.name)
        entrant.program = None if len(begun) == 3 else cast(Program, Held())

    entrants = Entrants(cast(Programs, None), tmp_path, tmp_path)
    monkeypatch.setattr(entrants_module.baselines, "program", lambda task, kind: COMPILED)
    monkeypatch.setattr(entrants_module, "build", lambda *_: tmp_path)
    monkeypatch.setattr(entrants, "_begin", begin)
    timed = SimpleNamespace(instance=SimpleNamespace(draw=lambda *_: []), as_given=None)
    kinds: Any = {"entrants": {}, "task": SimpleNamespace(digest=lambda: "t"), "seed": 1, "timed": timed}
    eager = entrants.of(SimpleNamespace(**kinds, device="cpu", call_bytes=1), "eager")
    first = eager.program
    eager.renew()
    assert eager.program is first and begun == ["eager"]
    eager.races = 1
    eager.renew()
    assert eager.program is not first and first is not None and cast(Held, first).closed and eager.races == 0
    eager.races = 1
    with pytest.raises(JudgeFailed, match="eager does not start again"):
        eager.renew()
    most = {"cpu": entrants_module.RENEWED_BYTES, "cuda:0": entrants_module.DEVICE_RENEWED_BYTES}
    for device, size in most.items():
        large: Any = SimpleNamespace(**(kinds | {"entrants": {}}), device=device, call_bytes=size + 1)
        assert entrants.of(large, "eager").start is None
    some: Any = SimpleNamespace(**(kinds | {"entrants": {}}), device="cuda:0", call_bytes=1)
    lasting = entrants.of(some, "eager")
    first, lasting.races = lasting.program, entrants_module.DEVICE_RACES - 1
    lasting.renew()
    assert lasting.program is first
    lasting.races += 1
    lasting.renew()
    assert lasting.program is not first
