# SPDX-License-Identifier: Apache-2.0
"""Every way a program can die, hang, flood or lie ends in one ChildFailure that names it, and the judge goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch

from kernelwright import sandbox
from kernelwright.judge import leash
from kernelwright.judge.buffers import CallPlan, TensorSpec
from kernelwright.judge.leash import ChildFailure, Leash
from kernelwright.judge.program import Program
from kernelwright.judge.states import States

Make = Callable[..., Program]
SPEC = TensorSpec.contiguous((4,), "float32")
PLAN = CallPlan(arguments={"list": [{"t": 0}]}, inputs=(SPEC,), results={"t": 0}, outputs=(SPEC,), sets=2)
SEND = "import os, struct\nfor n in range(3, 64):\n    try: os.write(n, {body})\n    except OSError: pass"


def fails(program: Program) -> ChildFailure:
    """Bind and run one window that must fail."""
    program.bind(PLAN)
    with pytest.raises(ChildFailure) as caught:
        program.window([0])
    return caught.value


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("raise ValueError('a canary in a coal mine')", "raised ValueError: a canary in a coal mine"),
        ("raise SystemExit(0)", "raised SystemExit: 0"),
        ("import os; os._exit(0)", "exited with status 0"),
        ("import os; os._exit(3)", "exited with status 3"),
        ("import ctypes; ctypes.string_at(1)", "killed by SIGSEGV"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("return torch.cat([x, x])", "wrong structure: output 0 is [8] float32 on cpu, strided, expected [4]"),
        ("return x.double()", "wrong structure: output 0 is [4] float64"),
        ("return (x,)", "wrong structure: returned (tensor,), expected tensor"),
        (
            "class Lazy(torch.Tensor): pass\nreturn x.as_subclass(Lazy)",
            "wrong structure: output 0 is a Lazy, expected a torch.Tensor",
        ),
        ("return x.to_sparse()", "wrong structure: output 0 is [4] float32 on cpu, sparse_coo"),
    ],
)
def test_a_failing_call_is_named(program: Make, forward: str, reason: str) -> None:
    """Crash, exit, exception and wrong structure each say what they were."""
    assert fails(program(forward)).reason.startswith(reason)


def test_a_program_that_dies_with_a_record_unread_is_named(program: Make) -> None:
    """The judge's end of the channel is reset then, which once passed for a fault of the judge."""
    dies = (
        "import os, select, sys\n"
        "def dies(channel):\n    select.select([channel], [], [])\n    os._exit(3)\n"
        "sys.modules['kernelwright.judge.wires'].receive = dies\nreturn x * 2.0"
    )
    assert "exited with status 3" == fails(program(dies)).reason


def test_the_stage_is_the_one_the_judge_is_in(program: Make) -> None:
    """The same crash is a smoke failure or a timing failure, as the judge says."""
    one = program("raise ValueError")
    one.stage = "time"
    assert "time" == fails(one).stage


def test_a_failed_load_is_of_stage_load(program: Make) -> None:
    """An exception in the constructor carries the candidate's own trace."""
    one = program("return x", init="raise KeyError('nope')", load=False)
    with pytest.raises(ChildFailure) as caught:
        one.load("new.py::ModelNew")
    assert ("load", "raised KeyError: 'nope'") == (caught.value.stage, caught.value.reason)
    assert "new.py" in caught.value.detail


def test_a_hang_is_killed_at_the_limit(program: Make) -> None:
    """A call that never returns costs the limit and no more."""
    one = program("while True: pass", seconds=0.3)
    assert "no answer within 0.3 s" == fails(one).reason


def test_a_hang_that_ignores_signals_is_killed_too(program: Make) -> None:
    """SIGKILL from outside cannot be blocked by the first process of a namespace."""
    blocks = "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\ntime.sleep(60)"
    assert "no answer within 0.3 s" == fails(program(blocks, seconds=0.3)).reason


def test_a_memory_bomb_is_out_of_memory(program: Make) -> None:
    """Allocation beyond the limit fails inside the program."""
    assert fails(program("return [torch.ones(1 << 24) for _ in range(99)]")).reason.startswith("out of memory")


def test_shared_memory_counts_as_memory(program: Make) -> None:
    """Anonymous shared mappings escape the kernel's limit and not the judge's eye."""
    bomb = (
        "import mmap, time\nself.m = mmap.mmap(-1, 1 << 30)\n"
        "for i in range(0, 1 << 30, 4096): self.m[i] = 1\ntime.sleep(60)"
    )
    assert "out of memory: more than 512 MiB" == fails(program(bomb)).reason


def test_endless_printing_is_named(program: Make) -> None:
    """The output file is full after output_bytes; nothing grows on the judge's side."""
    failure = fails(program("while True: print('all work and no play')"))
    assert failure.reason.startswith("endless output (more than 65536 bytes)")
    assert len(failure.detail) <= 4000


def test_endless_printing_that_swallows_errors_ends_as_a_hang(program: Make) -> None:
    """Even then the flood is named."""
    flood = "import os\nwhile True:\n    try: os.write(1, b'x' * 4096)\n    except OSError: pass"
    assert "endless output (more than 65536 bytes); no answer within 0.3 s" == fails(program(flood, seconds=0.3)).reason


def test_a_thread_bomb_is_counted(program: Make) -> None:
    """Too many threads end the program, whatever the kernel counts."""
    bomb = (
        "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    except RuntimeError: time.sleep(60)"
    )
    one = program(bomb, processes=32, seconds=2.0)
    assert fails(one).reason in ("more than 32 processes and threads", "no answer within 2 s")


@pytest.mark.parametrize("body", ["b'D' + bytes(8)", "b'{}'", "b'[1, 2'", "b'W' + bytes(16)", "b'x' * 70000"])
def test_a_forged_answer_is_an_integrity_failure(program: Make, body: str) -> None:
    """A record written past the runner carries no number the judge drew."""
    assert "integrity" == fails(program(SEND.format(body=body) + "\nreturn x")).stage


def test_an_answer_before_the_question_is_an_integrity_failure(program: Make) -> None:
    """What waits in the channel when a window starts was not asked for."""
    late = "import threading\nthreading.Timer(0.0, lambda: None)\n" + SEND.format(body='b\'{"ok": "bind"}\'')
    one = program("return x", init=late, load=False)
    with pytest.raises(ChildFailure) as caught:
        one.load("new.py::ModelNew")
    assert "integrity" == caught.value.stage


def test_the_judge_goes_on_after_any_death(program: Make) -> None:
    """The next program of the same zygote works."""
    fails(program("import os; os._exit(1)"))
    one = program("return x + 1")
    buffers = one.bind(PLAN)
    buffers.inputs[1][0].fill_(41.0)
    one.window([1])
    assert torch.equal(torch.full((4,), 42.0), buffers.outputs[1][0])


def test_a_dead_program_stays_dead_in_words(program: Make) -> None:
    """A second request says how it ended instead of hanging."""
    one = program("import os; os._exit(7)")
    fails(one)
    with pytest.raises(ChildFailure, match="it had already ended: exited with status 7"):
        one.window([0])


def test_what_it_printed_is_kept(program: Make) -> None:
    """stdout and stderr of C and Python end in the detail of a failure."""
    failure = fails(program("import os; print('from python'); os.write(2, b'from C'); raise ValueError"))
    assert "from python" in failure.detail and "from C" in failure.detail


class Restless(Leash):
    """A leash on a process that never stands still, and the signals it was sent."""

    def __init__(self, runs: int, *, on_device: bool) -> None:
        self.runs, self.on_device, self.sent = runs, on_device, []
        self.cpu_clock, self.family, self._stirred, self._mute = None, False, False, 0

    def _signal(self, number: signal.Signals) -> None:
        self.sent.append(number)

    def _threads(self) -> list[str]:
        return ["1"]

    def _goes(self, thread: str) -> bool:
        return self.sent.count(signal.SIGCONT) < self.runs

    def _leaves(self, thread: str) -> bool:
        return False

    def end(self, stage: str, reason: str, detail: str = "") -> NoReturn:
        raise ChildFailure(stage, reason, detail)


@pytest.mark.parametrize(("on_device", "stood"), [(False, 2_600_010), (True, 10)])
def test_what_a_stopped_thread_uses_until_it_leaves_its_cpu_is_no_work_of_its_own(on_device: bool, stood: int) -> None:
    """A virtual CPU was taken away for 2.6 ms just then. What comes after is its own; a device's is not waited for."""
    used = [10]
    one = Restless(0, on_device=on_device)
    one.pid, one._waking, one.cpu_clock = 1, threading.RLock(), lambda pid: used[0]  # type: ignore[assignment]
    leaving = [True, True, False]

    def leaves(thread: str) -> bool:
        if not (still := leaving.pop(0)):
            used[0] += 2_600_000  # the clock is told when it leaves
        return still

    one._leaves = leaves  # type: ignore[method-assign]
    one.stop()
    assert one._stood_at == stood
    if not on_device:
        used[0] += 2_400_000
        one.wake()  # forgiven, once: a kernel that does not say who has left
        leaving += [False]
        one.stop()
        used[0] += 2_400_000
        with pytest.raises(ChildFailure, match=r"it ran for 2.4 ms while it was stopped"):
            one.wake()


def test_nobody_waits_for_long_where_the_kernel_does_not_say_who_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three stops are tried; a verdict has thousands."""
    monkeypatch.setattr(leash, "LEAVING_SECONDS", 0.001)
    asked: list[str] = []
    one = Restless(0, on_device=False)
    one.pid, one._waking, one.cpu_clock = 1, threading.RLock(), lambda pid: 10  # type: ignore[assignment]
    one._leaves = lambda thread: not asked.append(thread)  # type: ignore[method-assign, func-returns-value]
    for _ in range(3):
        one.stop()
    before = len(asked)
    assert before >= 3
    one.stop()
    assert before == len(asked)


@pytest.mark.parametrize(("on_device", "most_ms"), [(False, 50), (True, 500)])
def test_long_work_while_stopped_is_not_forgiven_once(on_device: bool, most_ms: int) -> None:
    """51 ms are nobody's last moment, nor 501 in a driver, nor are a little less for a second time."""
    for spent, refused in (([most_ms + 1], True), ([most_ms - 1], False), ([most_ms - 1] * 2, True)):
        read = [10]
        one = Restless(0, on_device=on_device)
        one.pid, one._waking, one.cpu_clock = 1, threading.RLock(), lambda pid, read=read: read[0]  # type: ignore
        expected = rf"it ran for {spent[-1]}.0 ms while it was stopped"
        with pytest.raises(ChildFailure, match=expected) if refused else contextlib.nullcontext():
            for each in spent:
                one.stop()
                read[0] += each * 1_000_000
                one.wake()


CHILD = """
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
SAID = mmap.mmap(-1, 4096)
def hold(size):
    at = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0)))
    while True:
        SAID[0] = 1
        if libc.madvise(at, ctypes.c_size_t(size), 23):  # MADV_POPULATE_WRITE: nothing but its end stops it
            ctypes.memset(at, 1, size)
            time.sleep(60)
        libc.madvise(at, ctypes.c_size_t(size), 4)
def start(size):
    SAID[0] = 0
    if os.fork() == 0:
        hold(size)
    while not SAID[0]:
        pass
"""


def test_processes_that_a_program_started_stand_still_too(program: Make) -> None:
    """One inside the kernel would else run on beside the next program's window."""
    one = program("start(1 << 28)\nreturn x + 1", head=CHILD, execute=True)
    one.bind(PLAN)
    one.window([0])
    members = sandbox.family(one.pid)
    states = {States().of(f"/proc/{pid}/stat") for pid in members}
    assert (2, {b"T"}) == (len(members), states)


def test_memory_of_processes_that_a_program_started_counts(program: Make) -> None:
    """Else each of them could take as much as the program itself."""
    head = CHILD.replace("libc.madvise(at, ctypes.c_size_t(size), 23)", "1")
    body = "for _ in range(3):\n    start(40 << 20)\ntime.sleep(10)\nreturn x"
    one = program(body, head=head, execute=True, memory_bytes=64 << 20)
    assert "out of memory" in fails(one).reason


def test_a_thread_that_cannot_be_stopped_ends_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """After three chances; one that waits for a child to start may use the second; a driver's threads take longer."""
    monkeypatch.setattr(leash, "STOP_SECONDS", 0.01)
    with pytest.raises(ChildFailure, match="cannot be stopped"):
        Restless(9, on_device=False).stop()
    patient = Restless(1, on_device=False)
    patient.stop()
    assert [signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP] == patient.sent
    driver = Restless(9, on_device=True)
    driver.stop()
    assert [signal.SIGSTOP] == driver.sent


@pytest.mark.parametrize("excused", [True, False])
def test_time_in_which_others_made_it_stand_still_is_not_its_own(
    program: Make, monkeypatch: pytest.MonkeyPatch, excused: bool
) -> None:
    """Frozen for an hour while another is timed, a program with a minute's patience still answers; it is ended where it
    takes that hour itself."""
    one = program("time.sleep(0.5)\nreturn x + 1", head="import time", seconds=60.0)
    one.bind(PLAN)
    hours = [0.0]
    monkeypatch.setattr(leash, "time", SimpleNamespace(monotonic=lambda: hours[0] + time.monotonic()))

    def freeze(stage: str) -> None:
        monkeypatch.setattr(one.leash, "_look", lambda stage: None)
        with one.leash.excused() if excused else contextlib.nullcontext():
            os.killpg(one.pid, signal.SIGSTOP)
            hours[0] += 3600.0
            os.killpg(one.pid, signal.SIGCONT)

    monkeypatch.setattr(one.leash, "_look", freeze)
    if excused:
        one.window([0])
    else:
        with pytest.raises(ChildFailure, match="no answer within 60 s"):
            one.window([0])
    assert 3600.0 == hours[0]


def test_nobody_wakes_what_others_made_stand_still(program: Make) -> None:
    """A baseline that is about to be asked when it is frozen would else compile beside what is timed."""
    one = program("return x + 1")
    one.bind(PLAN)
    order: list[str] = []
    asking = threading.Thread(target=lambda: (one.window([0]), order.append("answered")))
    with one.leash.excused():
        os.killpg(one.pid, signal.SIGSTOP)
        asking.start()
        asking.join(0.1)
        order.append(States().of(f"/proc/{one.pid}/stat").decode())
        os.killpg(one.pid, signal.SIGCONT)
    asking.join(20)
    assert ["T", "answered"] == order


def test_what_was_stopped_before_others_froze_it_stands_again_after(program: Make) -> None:
    """They let go on what they froze, and do not know that nobody had asked it anything."""
    one = program("return x + 1")
    one.bind(PLAN)
    with one.leash.excused():
        os.killpg(one.pid, signal.SIGSTOP)
        os.killpg(one.pid, signal.SIGCONT)
    states = []
    for _ in range(1000):  # a signal takes its time
        states.append(States().of(f"/proc/{one.pid}/stat"))
        if states[-1] == b"T":
            break
        time.sleep(0.001)
    assert b"T" == states[-1]
