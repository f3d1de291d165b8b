# SPDX-License-Identifier: Apache-2.0
"""Programs start with what they will need: those that compile begin with a cache that others of ours filled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.judge import headers
from kernelwright.judge import programs as module
from kernelwright.judge.programs import Programs

PLAIN = """class Plain:
    def __init__(self):
        import os, sys, tempfile
        assert "torch._inductor" not in sys.modules
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        os.makedirs(os.environ["TORCHINDUCTOR_CACHE_DIR"], exist_ok=True)  # as torch does where it imports its compiler
        for folder in (os.environ["TORCHINDUCTOR_CACHE_DIR"], tempfile.gettempdir()):
            try:
                os.mkdir(os.path.join(folder, "mine"))
            except OSError:
                continue
            raise AssertionError(folder)
"""
COMPILING = """import os


class Compiling:
    def __init__(self):
        found = sorted(os.listdir(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
        assert found == ["answered"], found
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        open(os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "mine"), "w").close()
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """With a cache that is primed already, so that nothing has to be compiled here."""
    (tmp_path / "cache" / "primed").mkdir(parents=True)
    (tmp_path / "cache" / "primed" / "answered").write_text("yes")
    headers.folder(tmp_path / "cache").mkdir()
    made = Programs(1, tmp_path / "cache")
    yield made
    made.close()


def write(folder: Path, source: str) -> Path:
    """A folder with one program."""
    folder.mkdir()
    (folder / "program.py").write_text(source)
    return folder


def test_a_program_without_a_folder_of_its_own_comes_from_the_plain_zygote(programs: Programs, tmp_path: Path) -> None:
    """It has torch and no compiler, sees no GPU, and nothing runs in the background for it. It may write nowhere, and
    who imports torch's compiler all the same need not."""
    with programs.fork("cpu", write(tmp_path / "plain", PLAIN), 60.0, None) as program:
        program.load("program.py::Plain")
    assert [] == programs.in_background()


@pytest.mark.slow
def test_a_program_that_compiles_begins_with_a_copy_of_the_primed_cache(programs: Programs, tmp_path: Path) -> None:
    """What it writes stays in its own copy."""
    with programs.fork("cpu", write(tmp_path / "compiling", COMPILING), 60.0, tmp_path / "own") as program:
        program.load("program.py::Compiling")
    assert ["answered", "mine"] == sorted(path.name for path in (tmp_path / "own" / "inductor").iterdir())
    assert ["answered"] == [path.name for path in (tmp_path / "cache" / "primed").iterdir()]


PICKY = """import os
from torch._inductor import config


class Primer:
    def __init__(self):
        folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        os.makedirs(folder)
        with open(os.path.join(folder, "asked"), "w") as file:
            file.write(str(config.cpp.vec_isa_ok))
        assert not %r or config.cpp.vec_isa_ok is None
"""


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_the_processor_is_probed_only_where_the_primer_fails_by_its_word(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor that says more than the compiler, or the system, lets through costs the time of probing it."""
    monkeypatch.setattr(module, "PRIMER", PICKY % fails)
    monkeypatch.setattr(module, "COMPILER", ("torch", "torch._inductor.config"))
    for _ in range(2):  # the second time it is known
        made = Programs(1, tmp_path / "cache")
        try:
            made.prime()
            assert made._priming is not None
            made._priming.join(60)
            found = {path.parent.name: path.read_text() for path in (tmp_path / "cache").glob("*/asked")}
        finally:
            made.close()
        assert ({"primed-probing": "None"} if fails else {"primed": "True"}) == found


TRIED = """import sys
from torch._inductor import config, cpu_vec_isa
tried = []
cpu_vec_isa.VecISA.check_build = lambda self, code: tried.append(str(self)) or False
import kernelwright.judge.isa_trusted
config.cpp.vec_isa_ok = {"None": None, "True": True}[sys.argv[1]]
print(cpu_vec_isa.VecISA.check_build(cpu_vec_isa.VecAVX2(), ""), tried)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("trusting", "said"), [("None", "False ['avx2']"), ("True", "True []")])
def test_vector_instructions_are_tried_where_nobody_is_trusted(trusting: str, said: str) -> None:
    """VNNI, bfloat16 and AMX too, about which torch's own setting says nothing."""
    run = subprocess.run([sys.executable, "-c", TRIED, trusting], capture_output=True, text=True, check=True)
    assert said == run.stdout.strip()


def test_a_program_may_read_the_folders_its_reference_imports_from(programs: Programs, tmp_path: Path) -> None:
    """Those of the task; a home as a whole is nobody's folder of imports."""
    helper = tmp_path / "beside"
    helper.mkdir()
    (helper / "kw_helper.py").write_text("VALUE = 3\n")
    folder = write(tmp_path / "importing", f"from kw_helper import VALUE\n\n\n{PLAIN}")
    told = tmp_path / "tasks"
    (told / "norms" / "rms").mkdir(parents=True)
    (told / "norms" / "rms" / "task.toml").write_text("")  # cases and tolerances are nothing for candidates
    programs.allow([str(Path.home()), "/", str(told), str(told / "norms" / "rms"), str(helper)])
    assert {str(helper)} == programs._imports
    with programs.fork("cpu", folder, 60.0, None) as program:
        program.load("program.py::Plain", imports=[str(helper)])


@pytest.mark.parametrize(("device", "ready"), [("cpu", False), ("cuda:0", True)])
def test_on_a_gpu_programs_begin_with_triton_ready(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, ready: bool
) -> None:
    """There almost every one needs it; importing it takes longer than most checks."""
    asked: list[tuple[str, ...]] = []
    roomy: list[torch.device] = []

    def start(preload: tuple[str, ...], **_: object) -> None:
        asked.append(preload)

    monkeypatch.setattr(module.Zygote, "start", start)
    monkeypatch.setattr(module.health, "make_room", roomy.append)
    monkeypatch.setattr(programs, "start", lambda *_, **__: None)
    programs.fork(device, tmp_path, 1.0, None)
    programs._zygotes.clear()
    assert [ready] == ["kernelwright.judge.triton_ready" in preload for preload in asked]
    assert [torch.device(device)] * ready == roomy


def test_what_triton_takes_of_its_own_files_is_taken_before_programs_start() -> None:
    """Where Triton is installed: its digest of itself and the platform are there, and a first launch imports nothing of
    it."""
    cache = pytest.importorskip("triton.runtime.cache")
    if not hasattr(getattr(cache, "triton_key", None), "cache_info"):
        pytest.skip("this Triton keeps its digest elsewhere")
    specialise = pytest.importorskip("triton._C.libtriton")
    if not hasattr(specialise, "native_specialize_impl"):
        pytest.skip("this Triton reads its arguments in Python")
    code = """
import kernelwright.judge.triton_ready, sys
from triton._C.libtriton import native_specialize_impl
from triton.backends import backends
modules = {name for name in sys.modules if name.startswith("triton.")}
print(sys.modules["triton.runtime.cache"].triton_key.cache_info().currsize)
print(sys.modules["triton.runtime.build"].platform_key.cache_info().currsize)
native_specialize_impl(backends["nvidia"].compiler, 3, False, True, True)
print(sorted({name for name in sys.modules if name.startswith("triton.")} - modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["1", "1", "[]"]


@pytest.mark.parametrize(("device", "in_threads", "wanted"), [("cuda:0", True, 3), ("cuda:0", False, 1)])
def test_a_baseline_prepares_its_choices_for_a_device_in_threads(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, in_threads: bool, wanted: int
) -> None:
    """As many as there are cores, and no candidate does."""
    asked: list[str] = []

    class Forks:
        own_root = False

        def fork(self, *_: object, env: dict[str, str], **__: object) -> None:
            asked.append(env["TORCHINDUCTOR_COMPILE_THREADS"])

    monkeypatch.setattr(programs, "threads", 3)
    monkeypatch.setattr(programs, "_zygote", lambda **_: Forks())
    monkeypatch.setattr(module.health, "make_room", lambda _: None)
    programs.fork(device, tmp_path, 1.0, tmp_path / "own", in_threads=in_threads)
    assert [str(wanted)] == asked


def test_torch_takes_the_number_for_threads_and_the_setting_for_processes() -> None:
    """Workers would be programs that nothing stops between windows; so a baseline says that there is one at most."""
    from kernelwright.judge.baselines import KINDS

    for name in ("compile", "cuda-graph"):
        text = KINDS[name].template.partition("class Baseline")[0].replace("from reference import {entry}", "import os")
        code = f"""{text.partition(" as Reference")[0]}
{text.partition(" as Reference")[2]}
from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.select_algorithm import get_num_workers
assert (get_num_workers(), get_compile_threads(), AsyncCompile.use_process_pool()) == (5, 1, False)
"""
        env = {"PATH": "/usr/bin:/bin", "TORCHINDUCTOR_COMPILE_THREADS": "5"}
        subprocess.run([sys.executable, "-c", code], check=True, env=env)
