# SPDX-License-Identifier: Apache-2.0
"""A system-call filter (classic BPF by prctl): what no kernel needs is refused with EPERM.

Numbers: linux/seccomp.h, linux/filter.h, asm/unistd_64.h and asm-generic/unistd.h. Other architectures than
x86-64 and aarch64 get no filter, and the level says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

from kernelwright.sandbox import kernel

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_THREAD = 0x0001_0000  # CLONE_THREAD
_NAMESPACES = 0x7E02_0000 | 0x0200_0000  # every CLONE_NEW* flag
_UNIX = 1  # AF_UNIX
_SET_SIGNAL = 10  # F_SETSIG
_ODD_EXIT_SIGNAL = 0xFF & ~0x11  # what a child sends its parent when it dies: SIGCHLD (0x11) or nothing (a thread)
_X32_BIT = 0x4000_0000
_SPEC_ALLOW = 4  # SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it old kernels slow every load (store bypass mitigation)


@dataclass(frozen=True, slots=True)
class _Machine:
    audit: int
    seccomp: int
    numbers: dict[str, int]


_X86_64 = _Machine(
    0xC000_003E,
    317,
    {
        "socket": 41, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "shmget": 29, "msgget": 68,
        "ptrace": 101, "setpgid": 109, "setsid": 112, "personality": 135, "pivot_root": 155, "prctl": 157,
        "adjtimex": 159, "setrlimit": 160, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165,
        "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171,
        "init_module": 175, "delete_module": 176, "quotactl": 179, "tkill": 200, "clock_settime": 227,
        "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "memfd_create": 319, "kexec_file_load": 320,
        "bpf": 321, "execveat": 322, "userfaultfd": 323, "tgkill": 234, "rt_sigqueueinfo": 129,
        "rt_tgsigqueueinfo": 297, "timer_create": 222, "fcntl": 72,
    },
)  # fmt: skip
_AARCH64 = _Machine(
    0xC000_00B7,
    277,
    {
        "socket": 198, "clone": 220, "execve": 221, "kill": 129, "shmget": 194, "msgget": 186, "ptrace": 117,
        "setpgid": 154, "setsid": 157, "personality": 92, "pivot_root": 41, "prctl": 167, "adjtimex": 171,
        "setrlimit": 164, "chroot": 51, "acct": 89, "settimeofday": 170, "mount": 40, "umount2": 39,
        "swapon": 224, "swapoff": 225, "reboot": 142, "sethostname": 161, "setdomainname": 162,
        "init_module": 105, "delete_module": 106, "quotactl": 60, "tkill": 130, "clock_settime": 112,
        "mq_open": 180, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
        "perf_event_open": 241, "fanotify_init": 262, "prlimit64": 261, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
        "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279, "kexec_file_load": 294,
        "bpf": 280, "execveat": 281, "userfaultfd": 282, "tgkill": 131, "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240, "timer_create": 107, "fcntl": 25,
    },
)  # fmt: skip
_NEWER = {  # one numbering for all architectures since Linux 5.1
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "memfd_secret": 447,
    "process_mrelease": 448,
}  # fmt: skip
_CLONE3 = 435
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}

_CONDITIONAL = {
    "clone",
    "fork",
    "vfork",
    "execve",
    "execveat",
    "prctl",
    "prlimit64",
    "memfd_create",
    "shmget",
    "socket",
    "fcntl",
}
_SIGNALS = {"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"}
_REFUSED_PRCTL = (kernel.PR_SET_PDEATHSIG, kernel.PR_SET_DUMPABLE, kernel.PR_SET_CHILD_SUBREAPER, 0x5961_6D61)

Instruction = tuple[int, int, int, int]


def program(machine: str, *, execute: bool, devices: bool, own_pid: int) -> list[Instruction]:
    """The filter as (code, jump if true, jump if false, constant), or an empty list for an unknown machine.

    ``execute`` permits starting programs, ``devices`` what a CUDA driver needs (anonymous memory
    files, unix sockets).
    ``own_pid`` not 0: signals only to that process (for use where no pid namespace hides the others).
    """
    found = _MACHINES.get(machine)
    if found is None:
        return []
    numbers = found.numbers
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    body: list[Instruction] = [(_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, found.audit), (_RETURN, 0, 0, _KILL)]
    body += [(_LOAD, 0, 0, _NUMBER_AT)]
    if machine == "x86_64":
        body += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    always = [n for name, n in numbers.items() if name not in _CONDITIONAL | _SIGNALS | {"setpgid"}]
    # Build tools (ninja) put what they start into groups of its own and give up where that fails. They are told that
    # it was done: everything stays in the one group that is stopped between windows.
    body += [(_EQUAL, 0, 1, numbers["setpgid"]), (_RETURN, 0, 0, _ERRNO) if execute else refuse]
    if not execute:
        always += [numbers[name] for name in ("fork", "vfork", "execve", "execveat") if name in numbers]
    if not devices:
        always += [numbers["memfd_create"], numbers["shmget"], numbers["socket"]]
    for number in [*always, *_NEWER.values()]:
        body += [(_EQUAL, 0, 1, number), refuse]
    body += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]  # glibc falls back to clone
    # A dying child cannot be stopped any more, and the SIGCONT it may be told to leave would wake its stopped parent.
    body += _on_argument(numbers["clone"], 0, _ANY_BIT, _NAMESPACES | _ODD_EXIT_SIGNAL, refuse)
    if not execute:
        body += _unless_argument(numbers["clone"], 0, _ANY_BIT, _THREAD, refuse)
    if devices:  # the CUDA driver opens a unix socket of its own and fails without; no other family
        body += _unless_argument(numbers["socket"], 0, _EQUAL, _UNIX, refuse)
    for option in _REFUSED_PRCTL:
        body += _on_argument(numbers["prctl"], 0, _EQUAL, option, refuse)
    body += _on_argument(numbers["fcntl"], 1, _EQUAL, _SET_SIGNAL, refuse)  # like a timer, it could send SIGCONT
    body += _unless_null(numbers["prlimit64"], 2, refuse)
    if own_pid:
        for name in sorted(_SIGNALS):
            body += _unless_argument(numbers[name], 0, _EQUAL, own_pid, refuse)
    return [*body, (_RETURN, 0, 0, _ALLOW)]


def _on_argument(number: int, index: int, test: int, value: int, then: Instruction) -> list[Instruction]:
    at = _ARGUMENTS_AT + 8 * index
    return [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, at), (test, 0, 1, value), then, (_LOAD, 0, 0, _NUMBER_AT)]


def _unless_argument(number: int, index: int, test: int, value: int, then: Instruction) -> list[Instruction]:
    at = _ARGUMENTS_AT + 8 * index
    return [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, at), (test, 1, 0, value), then, (_LOAD, 0, 0, _NUMBER_AT)]


def _unless_null(number: int, index: int, then: Instruction) -> list[Instruction]:
    low = _ARGUMENTS_AT + 8 * index
    return [
        (_EQUAL, 0, 6, number), (_LOAD, 0, 0, low), (_EQUAL, 0, 2, 0), (_LOAD, 0, 0, low + 4), (_EQUAL, 1, 0, 0),
        then, (_LOAD, 0, 0, _NUMBER_AT),
    ]  # fmt: skip


def refuse(*, execute: bool, devices: bool, foreign_signals: bool) -> str:
    """Install the filter in the calling process for good; the words for the level, or "" where it cannot be.

    Needs no_new_privs. ``foreign_signals`` True: other processes are visible, so refuse signalling them.
    """
    machine = platform.machine()
    code = program(machine, execute=execute, devices=devices, own_pid=os.getpid() if foreign_signals else 0)
    if not code:
        return ""
    body = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(body, len(body))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(buffer)))
    for flags in (_SPEC_ALLOW, 0):
        try:
            kernel.syscall(_MACHINES[machine].seccomp, 1, flags, ctypes.byref(header))
        except OSError:
            continue
        return "seccomp"
    return ""
