# SPDX-License-Identifier: Apache-2.0
"""What a confined program can reach: its own folder, the libraries, its buffers, and nothing else."""

from __future__ import annotations

import importlib
import operator
import os
import select
import socket
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright import sandbox
from kernelwright.errors import JudgeFailed
from kernelwright.judge import zygote
from kernelwright.judge.child import Zygote
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.measure import clock
from kernelwright.judge.program import Program

Make = Callable[..., Program]
ATTEMPTS = 12
CANARY = "canary-7f3a"
HEAD = """
import ctypes, errno, os, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def outcome(work):
    try:
        return f"reached {work()!r}"
    except OSError as error:
        return errno.errorcode[error.errno]
def call(number, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), "")
    return "ok"
"""


def told(make: Make, expression: str, **options: object) -> str:
    """What ``expression`` gives inside a confined program; an error of the kernel as its name."""
    one = make("return x", head=HEAD, init=f"raise RuntimeError(outcome(lambda: {expression}))", load=False)
    with pytest.raises(ChildFailure) as caught:
        one.load("new.py::ModelNew")
    return caught.value.reason.removeprefix("raised RuntimeError: ")


@pytest.fixture
def forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file beside the judge: where a task or an expected value would lie."""
    path = tmp_path / "task" / "reference.py"
    path.parent.mkdir()
    path.write_text(CANARY)
    monkeypatch.chdir(path.parent)
    return path


def test_its_environment_holds_nothing_of_ours(program: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret in the judge's environment reaches neither os.environ nor C nor /proc."""
    monkeypatch.setenv("MY_API_KEY", CANARY)
    fresh = Zygote.start(("torch",), clock=clock)
    (tmp_path / "new.py").write_text(
        HEAD + "def probe():\n    text = repr(dict(os.environ)) + open('/proc/self/environ').read()\n"
        "    raise RuntimeError(text + repr(libc.getenv(b'MY_API_KEY')))\n"
    )
    limits = sandbox.Limits(seconds=20, memory_bytes=1 << 28, processes=9, file_bytes=9, output_bytes=1 << 14)
    try:
        one = fresh.fork(tmp_path, device="cpu", limits=limits, env={"MARK": "kept"})
        with pytest.raises(ChildFailure) as caught:
            one.load("new.py::probe")
    finally:
        fresh.close()
    assert CANARY not in caught.value.reason + caught.value.detail
    assert "MARK" in caught.value.detail


def test_it_cannot_read_the_task(program: Make, forbidden: Path) -> None:
    """A file beside the judge can be neither opened nor, with a root of its own, found."""
    assert told(program, f"open({str(forbidden)!r}).read()") in ("EACCES", "ENOENT")


def test_it_cannot_read_what_root_reads(program: Make) -> None:
    """Even started by root."""
    assert told(program, "open('/etc/shadow').read()") in ("EACCES", "ENOENT")


def test_it_cannot_list_other_candidates(program: Make, tmp_path: Path) -> None:
    """The folder above its own is not readable."""
    assert told(program, "os.listdir('..')") == "EACCES"


def test_it_reads_its_own_folder_and_cannot_write_it(program: Make) -> None:
    """Sources are for reading."""
    assert told(program, "os.listdir('.')") == "reached ['new.py']"
    assert told(program, "open('new.py', 'a')") in ("EACCES", "EROFS")


@pytest.mark.parametrize("place", ["/tmp/x", "/dev/shm/x", "/x", "/usr/x"])
def test_it_cannot_write_anywhere(program: Make, place: str) -> None:
    """No file leaves the program."""
    assert told(program, f"open({place!r}, 'w')") in ("EACCES", "ENOENT", "EROFS")


def test_it_sees_no_other_process(program: Make) -> None:
    """Its /proc lists itself only, so no process of the judge has a number it could use."""
    seen = told(program, "sorted(int(n) for n in os.listdir('/proc') if n.isdigit())")
    assert seen in ("reached [1]", "EACCES")


@pytest.mark.parametrize(
    "expression",
    [
        "os.kill({judge}, 0)",
        "os.kill({zygote}, 9)",
        "open('/proc/{judge}/environ').read()",
        "open('/proc/{judge}/mem', 'r+b')",
        "os.listdir('/proc/{zygote}/fd')",
    ],
)
def test_it_cannot_touch_the_judge(program: Make, zygote: Zygote, expression: str) -> None:
    """Neither by signal nor through /proc."""
    text = expression.format(judge=os.getpid(), zygote=zygote.pid)
    assert told(program, text) in ("ESRCH", "EPERM", "ENOENT", "EACCES")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86-64")
@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("ptrace attach", "call(101, 16, 1, 0, 0)"),
        ("process_vm_readv", "call(310, 1, 0, 0, 0, 0, 0)"),
        ("process_vm_writev", "call(311, 1, 0, 0, 0, 0, 0)"),
        ("pidfd_open", "call(434, 1, 0)"),
        ("fork", "os.fork()"),
        ("vfork", "call(58)"),
        ("clone without a thread", "call(56, 17, 0, 0, 0, 0)"),
        ("exec", "os.execv('/bin/true', ['true'])"),
        ("setsid", "os.setsid()"),
        ("setpgid", "os.setpgid(0, 0)"),
        ("unshare", "call(272, 0x10000000)"),
        ("mount", "call(165, b'x', b'/tmp', b'tmpfs', 0, 0)"),
        ("bpf", "call(321, 0, 0, 0)"),
        ("perf_event_open", "call(298, 0, 0, -1, -1, 0)"),
        ("io_uring_setup", "call(425, 8, 0)"),
        ("userfaultfd", "call(323, 0)"),
        ("memfd_secret", "call(447, 0)"),
        ("memfd_create", "os.memfd_create('x')"),
        ("prctl PDEATHSIG", "call(157, 1, 0, 0, 0, 0)"),
        ("a unix socket", "socket.socket(socket.AF_UNIX)"),
        ("an internet socket", "socket.socket(socket.AF_INET)"),
        ("a netlink socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    ],
)
def test_a_call_no_kernel_needs_is_refused(program: Make, name: str, expression: str) -> None:
    """The filter answers EPERM before anything else can."""
    assert "EPERM" == told(program, expression)


def test_what_a_build_tool_starts_stays_in_the_group_that_is_stopped(zygote: Zygote, tmp_path: Path) -> None:
    """ninja asks for a group of its own for every compiler, and goes on; one that only loads may not start any."""
    limits = sandbox.Limits(seconds=20, memory_bytes=1 << 28, processes=9, file_bytes=1 << 20, output_bytes=1 << 14)
    starts = "os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 7'], {}, setpgroup=0), 0)[1] >> 8, os.getpgid(0)"
    text = f"raise RuntimeError(outcome(lambda: ((old := os.getpgid(0)), {starts}) [1:] + (old,)))"
    (tmp_path / "new.py").write_text(HEAD + text)
    for execute, wanted in ((True, r"reached \(7, (\d+), \1\)"), (False, "EPERM")):
        one = zygote.fork(tmp_path, device="cpu", limits=limits, execute=execute)
        with pytest.raises(ChildFailure, match=wanted):
            one.load("new.py::ModelNew")


def test_limits_cannot_be_raised(program: Make) -> None:
    """Its ceilings are not its own to move."""
    got = told(program, "resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)) or 'ok'")
    assert got in ("EPERM", "raised ValueError: not allowed to raise maximum limit")


def test_it_cannot_reach_a_server_of_this_machine(program: Make) -> None:
    """A listener on loopback and one on an abstract socket stay out of reach."""
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as local:
        server.bind(("127.0.0.1", 0))
        server.listen()
        local.bind("\0kernelwright-test")
        local.listen()
        port = server.getsockname()[1]
        assert told(program, f"socket.create_connection(('127.0.0.1', {port}), 1)") == "EPERM"
        assert told(program, "socket.socket(socket.AF_UNIX).connect('\\0kernelwright-test')") == "EPERM"


def test_it_holds_no_descriptor_but_its_own(program: Make) -> None:
    """Null input, two output ends, its channel, and the listing itself."""
    links = "[os.readlink('/proc/self/fd/' + n) for n in '12'] + [len(os.listdir('/proc/self/fd'))]"
    got = told(program, links)
    assert "reached ['/memfd:output (deleted)', '/memfd:output (deleted)', 5]" == got


def test_threads_work(program: Make) -> None:
    """The filter refuses processes, not threads: OpenMP must run."""
    assert told(program, "torch.set_num_threads(2) or torch.ones(1 << 20).sum().item()") == "reached 1048576.0"


def test_the_level_is_told_in_words(program: Make) -> None:
    """On this kernel at least limits and the filter hold; the text names every layer."""
    level = program("return x").level
    assert level.endswith("limits") and "seccomp" in level


def test_the_zygote_has_one_thread(zygote: Zygote) -> None:
    """A fork copies one thread: locks held by others would stay locked for ever."""
    assert 1 == len(os.listdir(f"/proc/{zygote.pid}/task"))


def test_a_killed_zygote_is_replaced_once_needed(tmp_path: Path) -> None:
    """Its programs die with it; the next fork starts another."""
    own = Zygote.start(("torch",), clock=clock)
    limits = sandbox.Limits(seconds=20, memory_bytes=1 << 28, processes=9, file_bytes=9, output_bytes=1 << 14)
    (tmp_path / "new.py").write_text("class ModelNew:\n    def __call__(self, x): return x\n")
    try:
        first = own.fork(tmp_path, device="cpu", limits=limits)
        handles = [os.pidfd_open(own.pid), os.pidfd_open(first.pid)]
        os.kill(own.pid, 9)
        assert all(select.select([handle], [], [], 10)[0] for handle in handles)
        with pytest.raises(ChildFailure, match="disappeared"):
            first.load("new.py::ModelNew")
        second = own.fork(tmp_path, device="cpu", limits=limits)
        second.load("new.py::ModelNew")
    finally:
        own.close()


@pytest.mark.parametrize("fault", ["the zygote is gone", "it starts nothing", "it says nonsense", "no such folder"])
def test_a_fork_that_fails_leaves_nothing_open(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A memory file of its output and a channel each would add up to the limit of open files."""
    limits = sandbox.Limits(seconds=20, memory_bytes=1 << 28, processes=9, file_bytes=9, output_bytes=1 << 14)
    request = {"execute": False, "device": "cpu"}

    def ask(what: object, descriptors: object = ()) -> dict[str, object]:
        if fault == "the zygote is gone":
            raise BrokenPipeError
        return {"failed": "no memory"} if fault == "it starts nothing" else {"pid": 1 << 30}

    before = os.listdir("/proc/self/fd")
    for _ in range(ATTEMPTS):
        if fault == "no such folder":
            with pytest.raises(ChildFailure):
                zygote.fork(tmp_path / "none", device="cpu", limits=limits, writable=(tmp_path,))
            continue
        with monkeypatch.context() as patch, pytest.raises((OSError, JudgeFailed)):
            patch.setattr(zygote, "_ask", ask)
            zygote._fork(request, limits)
    more = set(os.listdir("/proc/self/fd")) - set(before)
    assert len(more) < ATTEMPTS  # a thread elsewhere may open one of its own meanwhile


def test_what_is_found_out_once_for_all_forks_is_there_in_this_torch() -> None:
    """A name that has moved would be left to every fork, silently: 1.3 s each."""
    for module, name in zygote.FOUND_OUT:
        found = importlib.import_module(module)
        assert not name or callable(operator.attrgetter(name)(found)), (module, name)
    assert any(name for _, name in zygote.FOUND_OUT)


def test_a_name_that_torch_has_moved_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after it is still found out; a torch that knows GPUs is not asked for their names."""
    called: list[str] = []
    odd = types.ModuleType("odd")
    odd.get_system = lambda: called.append("get_system")  # type: ignore[attr-defined]
    odd.found = lambda: called.append("found")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odd", odd)
    names = (("nowhere_to_be_found", ""), ("odd", "moved"), ("odd", "get_system"), ("odd", "found"))
    monkeypatch.setattr(zygote, "FOUND_OUT", names)
    monkeypatch.setattr(zygote.torch.version, "cuda", "13.0")
    zygote._found_out()
    assert ["found"] == called
    monkeypatch.setattr(zygote.torch.version, "cuda", None)
    monkeypatch.setattr(zygote.torch.version, "hip", None)
    zygote._found_out()
    assert ["found", "get_system", "found"] == called


def test_the_zygote_for_compilers_stays_alone_in_its_process() -> None:
    """What it found out left no thread behind that a fork would lack."""
    code = """
import os, sys
from kernelwright.judge import zygote
import torch._inductor.compile_fx
before = len(os.listdir("/proc/self/task"))
zygote._found_out()
assert before == len(os.listdir("/proc/self/task"))
assert "setuptools" in sys.modules and not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
