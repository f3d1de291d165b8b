# SPDX-License-Identifier: Apache-2.0
"""The filter, run by a small interpreter of classic BPF: every refused call, every allowed one, on both machines."""

from __future__ import annotations

import errno
import struct

import pytest

from kernelwright.sandbox import seccomp

NOTHING = 0x5_0000
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF_0000, 0x5_0000 | errno.EPERM, 0x5_0000 | errno.ENOSYS, 0x8000_0000
AUDIT = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
THREAD_FLAGS, FORK_FLAGS = 0x003D_0F00, 0x0120_0011


def run(program: list[seccomp.Instruction], audit: int, number: int, *arguments: int) -> int:
    """What the kernel would answer."""
    full = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, audit, 0, *[value & (2**64 - 1) for value in full])
    at, held = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x20:
            held = struct.unpack_from("=I", data, value)[0]
        elif code == 0x06:
            return value
        else:
            met = {0x15: held == value, 0x45: bool(held & value), 0x35: held >= value}[code]
            at += yes if met else no


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    """Both machines the numbers are written for."""
    return str(request.param)


def ask(machine: str, name: str, *arguments: int, **options: object) -> int:
    """The answer to one named call."""
    settings = {"execute": False, "devices": False, "own_pid": 0} | options
    program = seccomp.program(machine, **settings)  # type: ignore[arg-type]
    number = (seccomp._MACHINES[machine].numbers | seccomp._NEWER | {"clone3": 435})[name]
    return run(program, AUDIT[machine], number, *arguments)


@pytest.mark.parametrize(
    "name", ["ptrace", "setsid", "setpgid", "mount", "bpf", "socket", "io_uring_setup", "memfd_secret", "execve"]
)
def test_what_no_kernel_needs_is_refused(machine: str, name: str) -> None:
    """EPERM, whatever the arguments."""
    assert EPERM == ask(machine, name, 1, 2, 3)


def test_threads_are_allowed_and_processes_are_not(machine: str) -> None:
    """The flag that makes a clone a thread decides; clone3 cannot be looked into and is said not to exist."""
    assert ALLOW == ask(machine, "clone", THREAD_FLAGS)
    assert EPERM == ask(machine, "clone", FORK_FLAGS)
    assert ENOSYS == ask(machine, "clone3")


def test_executing_programs_can_fork_but_enter_no_namespace(machine: str) -> None:
    """Compilers need processes, never namespaces."""
    assert ALLOW == ask(machine, "clone", FORK_FLAGS, execute=True)
    assert ALLOW == ask(machine, "execve", execute=True)
    assert NOTHING == ask(machine, "setpgid", execute=True)  # said to be done, and not done
    assert EPERM == ask(machine, "clone", FORK_FLAGS | 0x1000_0000, execute=True)
    assert EPERM == ask(machine, "unshare", execute=True)


def test_a_dying_child_may_not_wake_its_parent(machine: str) -> None:
    """The exit signal is the low byte of the flags of clone: SIGCHLD or none, never SIGCONT (18)."""
    assert EPERM == ask(machine, "clone", FORK_FLAGS & ~0xFF | 18, execute=True)
    assert ALLOW == ask(machine, "clone", FORK_FLAGS & ~0xFF, execute=True)
    assert ALLOW == ask(machine, "clone", THREAD_FLAGS, execute=True)


def test_limits_can_be_read_and_not_set(machine: str) -> None:
    """prlimit64 with a new limit is refused, also when only the upper half of the pointer is set."""
    assert ALLOW == ask(machine, "prlimit64", 0, 7, 0, 0x7FFF_0000_1000)
    assert EPERM == ask(machine, "prlimit64", 0, 7, 0x1000, 0)
    assert EPERM == ask(machine, "prlimit64", 0, 7, 0x1_0000_0000, 0)


def test_the_death_signal_stays_armed(machine: str) -> None:
    """prctl is allowed but for the options that would free the program."""
    assert EPERM == ask(machine, "prctl", 1, 0)
    assert ALLOW == ask(machine, "prctl", 15, 0)


def test_signals_reach_only_itself_where_others_are_visible(machine: str) -> None:
    """With its own pid namespace it may do as it likes."""
    assert ALLOW == ask(machine, "tgkill", 77, 77, 6, own_pid=77)
    assert EPERM == ask(machine, "kill", 78, 9, own_pid=77)
    assert EPERM == ask(machine, "kill", -1, 9, own_pid=77)
    assert ALLOW == ask(machine, "kill", 78, 9)


def test_a_driver_may_make_memory_files(machine: str) -> None:
    """CUDA needs them; a CPU program has no use for memory nobody counts."""
    assert (ALLOW, EPERM) == (ask(machine, "memfd_create", devices=True), ask(machine, "memfd_create"))


def test_a_driver_may_open_unix_sockets_only(machine: str) -> None:
    """CUDA's initialisation fails without one; the network stays closed."""
    answers = [ask(machine, "socket", family, devices=True) for family in (1, 2, 10, 16)]
    assert [ALLOW, EPERM, EPERM, EPERM] == answers
    assert EPERM == ask(machine, "socket", 1)


def test_another_calling_convention_is_fatal(machine: str) -> None:
    """The 32-bit numbers of the same kernel mean other calls."""
    program = seccomp.program(machine, execute=False, devices=False, own_pid=0)
    assert KILL == run(program, 0x4000_0003, 11)
    assert ALLOW == run(program, AUDIT[machine], 63 if machine == "aarch64" else 0)


def test_x32_calls_do_not_exist() -> None:
    """The x32 bit would slip past every number."""
    program = seccomp.program("x86_64", execute=False, devices=False, own_pid=0)
    assert ENOSYS == run(program, AUDIT["x86_64"], 0x4000_0000 | 59)


def test_an_unknown_machine_gets_no_filter() -> None:
    """And the level does not claim one."""
    assert [] == seccomp.program("riscv64", execute=False, devices=False, own_pid=0)
