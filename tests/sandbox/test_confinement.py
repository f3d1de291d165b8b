# SPDX-License-Identifier: Apache-2.0
"""Confinement layer by layer: with any one of them missing, the others still hold, and the level says which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright import sandbox
from kernelwright.sandbox import environment, landlock, limits, places

SRC = Path(__file__).parents[2] / "src"
SCRIPT = """
import json, os, sys
sys.path.append({src!r})
from kernelwright.sandbox import confinement, landlock, seccomp
from kernelwright.sandbox.limits import Limits
{patch}
limits = Limits(seconds=9, memory_bytes=1 << 28, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)
permission = confinement.Permission(
    readable=({good!r},), writable=({free!r},), limits=limits, devices=False, execute={execute}, {more}
)
def reaches(work):
    try:
        work()
        return True
    except OSError:
        return False
flags = confinement.detach(permission)
outer = os.getpid()
if os.fork():
    os.wait()
    os._exit(0)
level = confinement.restrict(flags, permission)
told = {{
    "level": level,
    "good": reaches(lambda: open({good!r} + "/file").read()),
    "canary": reaches(lambda: open({bad!r} + "/file").read()),
    "exists": os.path.exists({bad!r} + "/file"),
    "free": reaches(lambda: open({free!r} + "/new", "w").close()),
    "write_good": reaches(lambda: open({good!r} + "/new", "w").close()),
    "kill": reaches(lambda: os.kill(outer, 0)),
    "python": reaches(lambda: open(os.__file__).read()),
    "uid": os.getuid(),
}}
os.write(1, json.dumps(told).encode())
os._exit(0)
"""


def confined(tmp_path: Path, patch: str = "", more: str = "", execute: bool = False) -> dict[str, object]:
    """What a confined process reaches when ``patch`` has taken layers away."""
    folders = {name: tmp_path / name for name in ("good", "bad", "free")}
    for folder in folders.values():
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "file").write_text("canary")
    names = {name: str(folder) for name, folder in folders.items()}
    script = SCRIPT.format(src=str(SRC), patch=patch, more=more, execute=execute, **names)
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def check(told: dict[str, object]) -> None:
    """What must hold whichever layers are there."""
    assert (True, True) == (told["good"], told["python"])
    assert (False, False, False) == (told["canary"], told["write_good"], told["kill"])


def test_all_layers_together(tmp_path: Path) -> None:
    """Allowed paths work, others do not even exist."""
    told = confined(tmp_path)
    check(told)
    assert told["free"]
    if "own root" in str(told["level"]):
        assert not told["exists"]


def test_without_namespaces_landlock_and_the_filter_hold(tmp_path: Path) -> None:
    """As in a container that forbids unshare."""
    if not landlock.version():
        pytest.skip("this kernel has no Landlock")
    told = confined(tmp_path, patch="confinement._ATTEMPTS = ()")
    check(told)
    assert told["free"] and "namespaces" not in str(told["level"])


def test_without_landlock_the_own_root_holds(tmp_path: Path) -> None:
    """As on an older kernel."""
    if "own root" not in sandbox.reached_level():
        pytest.skip("this machine gives no root of one's own")
    told = confined(tmp_path, patch="landlock.version = lambda: 0")
    check(told)
    assert not told["exists"] and "landlock" not in str(told["level"])


def test_without_the_filter_the_pid_namespace_hides_the_judge(tmp_path: Path) -> None:
    """As on a machine whose call numbers are unknown."""
    if "pid" not in sandbox.reached_level():
        pytest.skip("this machine gives no pid namespace")
    told = confined(tmp_path, patch="seccomp.platform.machine = lambda: 'riscv64'")
    check(told)
    assert "seccomp" not in str(told["level"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_root_becomes_a_user_of_its_own(tmp_path: Path) -> None:
    """Without writable folders to keep, a root judge's programs run as nobody else does."""
    tmp_path.chmod(0o755)
    told = confined(tmp_path, more="user=1234567890")
    if "own user" not in str(told["level"]):
        pytest.skip("this root may not change its user")
    assert 1234567890 == told["uid"] and told["good"] and not told["canary"]


def test_spare_users_differ() -> None:
    """So that the kernel counts each program's processes apart; 0 for those who cannot change."""
    drawn = {sandbox.spare_user() for _ in range(8)}
    assert (8 if os.getuid() == 0 else 1) == len(drawn)


def test_a_confined_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown names stay out, whatever they are called; the caller's own come in."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("LANG", "C")
    made = environment.confined({"MARK": "1"})
    assert "canary" not in made.values()
    assert ("C", "1", "/nonexistent") == (made["LANG"], made["MARK"], made["HOME"])
    assert "canary" not in environment.trusted().values()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exited with status 0"),
        (3 << 8, "exited with status 3"),
        (9, "killed by SIGKILL"),
        (139, "killed by SIGSEGV"),
        (60, "killed by signal 60"),
    ],
)
def test_a_wait_status_in_words(status: int, words: str) -> None:
    """Names for signals, numbers for statuses; the core bit does not matter."""
    assert words == limits.death(status)


def test_a_crowd_is_counted_with_descendants() -> None:
    """Threads of a process and of its children; nothing for one that is gone."""
    child = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & echo; wait"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    counted = limits.crowd(child.pid, 100)
    sleepers = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    for pid in (*map(int, sleepers), child.pid):
        os.kill(pid, 9)
    child.wait()
    child.stdout.close()
    assert (3, 0) == (counted, limits.crowd(child.pid, 100))


def test_resident_memory_is_seen_from_outside() -> None:
    """Private bytes of a process, zeros for one that is gone."""
    private, _ = limits.resident_bytes(os.getpid())
    assert private > 1 << 20
    assert (0, 0) == limits.resident_bytes(2**22 + 1)


def test_readable_places_are_few_and_exist() -> None:
    """Interpreter and libraries, and neither the root nor anybody's home."""
    found = places.readable(devices=False)
    assert all(os.path.exists(path) for path in found)
    assert not {"/", "/root", "/home", "/etc", "/tmp", "/proc", os.path.expanduser("~")} & set(found)
