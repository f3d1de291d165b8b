# SPDX-License-Identifier: Apache-2.0
"""Prompts as someone has to act on them: what they say of a device is what its judge enforces, no more and no less."""

from __future__ import annotations

import dataclasses

import pytest

from kernelwright import recipes
from kernelwright.candidate import Candidate
from kernelwright.machine import Fact, Machine
from kernelwright.proposers.agent import Ask, Evidence, Prompts, Surroundings, Wording
from kernelwright.proposers.agent.brief import (
    LONGEST_DIFF,
    describe_attempt,
    describe_change,
    describe_machine,
    own_frames,
)
from kernelwright.proposers.agent.effects import (
    PREDICTED,
    describe_difference,
    describe_order,
    describe_time,
    faster,
    shortened,
)
from kernelwright.proposers.agent.wording import MOST_OF_MODULES
from kernelwright.task import Task
from kernelwright.testing import timed
from kernelwright.trial import Rejected, Timed

TASK = Task(name="relu", form="kernelbench", reference="class Model: 'THE REFERENCE'")
KERNEL = (("kernel.cu", "__global__ void k();"), ("kernel.py", "class ModelNew: pass"))


def wording(device: str, language: str, **about: object) -> Wording:
    """Of a task nobody measured."""
    return Wording(task=TASK, device=device, machine=None, language=language, about=Surroundings(**about))


def evidence(language: str = "cuda") -> Evidence:
    """A program that was refused."""
    candidate = Candidate(
        task="t", language=language, entry="kernel.py::ModelNew", sources=KERNEL, proposer="agent:test"
    )
    outcome = Rejected(stage="verify", reason="off by one", detail="row 3")
    return Evidence(candidate=candidate, outcome=outcome, diagnosis="")


def test_the_baselines_named_are_those_that_are_raced() -> None:
    """As in judge/baselines.py: a CPU races eager and the default compiler, a GPU all four."""
    assert "eager PyTorch and `torch.compile`, timed beside it" in wording("cpu", "cpp").rules()
    assert "(default and max-autotune) and `torch.compile` in CUDA graphs" in wording("cuda:0", "triton").rules()


@pytest.mark.parametrize(
    ("device", "language", "watched", "said"),
    [("cpu", "cpp", True, "before it is timed"), ("cpu", "cpp", False, "where it would win"),
     ("cuda:0", "triton", False, "compute-sanitizer"), ("cpu", "torch", False, "")],
)  # fmt: skip
def test_sanitizers_are_announced_as_they_run(device: str, language: str, watched: bool, said: str) -> None:
    """Before every timing where the recipe has a race detector, else for winners; nothing is compiled of PyTorch."""
    text = wording(device, language, watched=watched).rules()
    assert (said in text, bool(said)) == (True, "anitizer" in text)


def test_the_recipe_with_a_race_detector_says_so() -> None:
    """One row has one."""
    assert ["parevo"] == [name for name, row in recipes.load().items() if row.sanitize]


@pytest.mark.parametrize(("kind", "stays"), [("improve", True), ("repair", True), ("race", True), ("translate", False)])
def test_a_program_in_another_language_may_stay_in_it(kind: str, stays: bool) -> None:
    """Asked for Triton, given CUDA: an edit keeps what it edits; a translation is one."""
    _, text = wording("cuda:0", "triton").request(Ask(kind=kind, parent=evidence()))
    assert stays == ("is in CUDA C++ and may stay in it: `NAME.cu` is compiled" in text)
    _, same = wording("cuda:0", "cuda").request(Ask(kind=kind, parent=evidence()))
    assert "may stay" not in same


def test_a_tester_is_plaininputs_of_the_timed_case() -> None:
    """Shapes and dtypes are the condition under which a case counts."""
    lines = ("input x: float32 [8, 16]", "input at: int64 [8], strides [2]", "output 0: float32 [8, 16]")
    expected = "torch.full([8, 16], 3, dtype=torch.float32), torch.full([8], 3, dtype=torch.int64)"
    assert expected == wording("cpu", "cpp", shapes=lines).inputs_example()
    assert "torch.full" in wording("cpu", "cpp").inputs_example()


def test_beside_a_raced_program_the_first_look_at_eager_is_left_out() -> None:
    """Two times of eager in one prompt, one of them taken while the judge was at work, would contradict each other."""
    spoken = wording("cpu", "cpp", eager="The reference takes about 900 us a call.", bound="It cannot take 1 us.")
    raced = dataclasses.replace(evidence("cpp"), outcome=timed(50.0))
    for kind, parent, others in (("improve", raced, ()), ("cross", None, (raced, raced)), ("new", None, ())):
        _, text = spoken.request(Ask(kind=kind, parent=parent, others=others))
        assert (kind == "new", True) == ("about 900 us" in text, "It cannot take 1 us." in text)
        assert (kind != "new") == ("2 times as fast as eager, which took 100 us beside it" in text)


def test_without_a_diagnosis_none_is_promised() -> None:
    """A recipe that shows none, or a program whose time is all that is known."""
    bare = dataclasses.replace(evidence(), outcome=None)
    _, without = wording("cuda:0", "cuda").request(Ask(kind="improve", parent=bare))
    _, given = wording("cuda:0", "cuda").request(
        Ask(kind="improve", parent=dataclasses.replace(bare, diagnosis="gap 3"))
    )
    assert (False, True) == ("Diagnosis" in without, "Diagnosis of exactly this program:\n\ngap 3" in given)


def test_numbers_of_a_machine_are_written_as_people_write_them() -> None:
    """No exponents; what was not measured is not there."""

    def fact(name: str, value: float | None, unit: str) -> Fact:
        return Fact(name=name, value=value, unit=unit, spread=0.0, note="")

    facts = (
        fact("bandwidth.copy.dram_GBps", 4268.4, "GB/s"), fact("count.processors", 132.0, ""),
        fact("peak.simd.float32_TFLOPs", 0.371, "TFLOP/s"), fact("cache.last_level_bytes", 62914560.0, "B"),
        fact("latency.launch_us", 8.9426, "us"), fact("bandwidth.read.dram_GBps", None, "GB/s"),
    )  # fmt: skip
    machine = Machine(device="cuda", name="A card", fingerprint="f", versions=(), facts=facts, measured_at=0.0)
    assert [
        "A card", "copying large arrays, bytes read plus bytes written: 4268 GB/s",
        "float32 arithmetic without matrix units: 371 GFLOP/s", "multiprocessors: 132", "last-level cache: 60 MiB",
        "one PyTorch operator on one element: 8.94 us",
    ] == describe_machine(machine)  # fmt: skip


def test_limits_of_a_block_are_in_the_coder_s_prompt_from_the_machine_s_facts() -> None:
    """A block, a multiprocessor, a core: whole lines where all is known, nothing at all where nothing is."""

    def machine(**values: float) -> Machine:
        facts = [Fact(name=n.replace("__", "."), value=v, unit="", spread=0.0, note="") for n, v in values.items()]
        return Machine(device="cuda:0", name="card", fingerprint="f", versions=(), facts=tuple(facts), measured_at=0.0)

    card = machine(
        limit__block__threads=1024, limit__block__registers=65536, limit__thread__registers=255, count__warp_threads=32,
        limit__block__shared_bytes=49152, limit__block__shared_most_bytes=232448, limit__processor__threads=2048,
        limit__processor__blocks=32, limit__processor__registers=65536, limit__processor__shared_bytes=233472,
        limit__block__shared_reserved_bytes=1024,
    )  # fmt: skip
    block = (
        "a block has at most: 1024 threads (32 warps of 32); 65536 registers of 32 bits (64 for each of 1024 threads, "
        "255 for one thread at most); 48 KiB of shared memory, 227 KiB where the launch asks for it"
    )
    holds = (
        "a multiprocessor holds at once at most: 2048 threads; 32 blocks; 65536 registers; 228 KiB of shared memory, "
        "of which each block takes 1 KiB more than it asks for"
    )
    rules = dataclasses.replace(wording("cuda:0", "cuda"), machine=card).rules()
    assert (True, True) == (f"- {block}" in rules, f"- {holds}\n" in rules)
    core = machine(cache__first_level_bytes=49152, cache__second_level_bytes=2 << 20, cache__line_bytes=64)
    said = "- caches of one core: 48 KiB first-level data, 2 MiB second-level, lines of 64 bytes"
    assert said in dataclasses.replace(wording("cpu", "cpp"), machine=core).rules()
    assert ["card"] == describe_machine(machine(limit__thread__registers=255)) == describe_machine(machine())


TRACE = """Traceback (most recent call last):
  File "/somewhere/judge/runner.py", line 67, in serve
    call()
  File "/cache/built/2a/kernel.py", line 33, in forward
    _rms[(rows,)](x)
  File "/lib/triton/compiler.py", line 80, in make_ir
    return ast_to_ttir()
           ^^^^^^^^^^^^^
triton.errors.CompilationError: at 6:12:
    scale = tl.nothing(x)
            ^
AttributeError("no attribute 'nothing'")"""
REASON = "raised CompilationError: " + TRACE.partition("CompilationError: ")[2]


def test_of_a_traceback_the_frames_of_the_author_are_shown() -> None:
    """Runner, torch and compiler are left out, and with them the folders of this machine; the end is said once."""
    own = 'Traceback (most recent call last):\n  File "kernel.py", line 33, in forward\n    _rms[(rows,)](x)'
    assert own == own_frames(TRACE, ["kernel.py"], REASON)
    assert own + "\n" + TRACE[TRACE.index("triton.errors") :] == own_frames(TRACE, ["kernel.py"])
    assert TRACE[TRACE.index("triton.errors") :] == own_frames(TRACE, ["other.py"])
    other = 'kernel.cu(13): error: File "x" is undefined'
    assert other == own_frames(other, ["kernel.cu"])


def test_an_attempt_is_one_line_whatever_the_compiler_said() -> None:
    """Where it was and what it was; the source between them is left out of the list."""
    failed = dataclasses.replace(evidence(), outcome=Rejected(stage="smoke", reason=REASON, detail=TRACE))
    said = "rejected at smoke: raised CompilationError: at 6:12: ... AttributeError(\"no attribute 'nothing'\")"
    assert f"a program in CUDA C++: {said}" == describe_attempt(failed)


def test_who_writes_beside_others_is_told_so() -> None:
    """Two equal requests at once would be answered alike."""
    alone, beside = (wording("cpu", "cpp").request(Ask(kind="new", beside=count))[1] for count in (0, 2))
    assert "at this moment" not in alone and "2 other answers to requests like this one are being written" in beside
    assert "choose what the others are less likely to choose" in beside
    given = dict(kind="new", beside=2, plan="one kernel")
    planned = wording("cpu", "cpp").request(Ask(**given))[1]
    assert "in what the plan leaves open" in planned and "less likely" not in planned  # it is told what to choose


def test_an_interval_says_what_cannot_be_told_from_noise() -> None:
    """100 us from 80 to 130: less than a quarter; from 99 to 101 needs no words; from 30 to 300 nothing can be told."""
    outcome = timed(2.0)
    wide, narrow, lost = (
        dataclasses.replace(
            outcome, timing=dataclasses.replace(outcome.timing, samples_us=(100.0,), low_us=a, high_us=b)
        )
        for a, b in ((80.0, 130.0), (99.0, 101.0), (30.0, 300.0))
    )
    assert "a change of less than 25% cannot be told from noise" in describe_time(wide)
    assert "noise" not in describe_time(narrow)
    assert "they scatter too much to tell programs apart" in describe_time(lost)
    assert "noise" not in describe_time(lost)


def test_what_is_cut_is_cut_between_words_and_said_so() -> None:
    """A summary loses no half of a word; a long difference says how much of it is missing."""
    assert ("one loop over", "abc") == (shortened("one loop over rows", 15), shortened("abcdef", 3))
    lines = [f"line {number}" for number in range(2000)]
    other = [line if number % 5 else line + "!" for number, line in enumerate(lines)]
    before, after = (
        dataclasses.replace(
            evidence(), candidate=dataclasses.replace(evidence().candidate, sources=(("kernel.py", "\n".join(text)),))
        )
        for text in (lines, other)
    )
    said = describe_change(before, after)
    assert "more lines]" in said and said.count("\n") < LONGEST_DIFF + 10


def measured(us: float, speedup: float, spread: float = 0.02) -> Timed:
    """A program of this median and ratio, both to within ``spread``."""
    outcome = timed(speedup)
    low, high = us * (1 - spread), us * (1 + spread)
    timing = dataclasses.replace(outcome.timing, samples_us=(us,), low_us=low, high_us=high)
    ends = {"speedup_low": speedup * (1 - spread), "speedup_high": speedup * (1 + spread)}
    return dataclasses.replace(outcome, timing=timing, speedup=speedup, **ends)


def test_which_of_two_is_faster_is_said_only_where_times_and_ratios_part_alike() -> None:
    """Eager took twice as long beside the second program: the ratio doubles, the time does not, and nothing is said."""
    first, lucky, better = measured(1000.0, 2.0), measured(1005.0, 4.0), measured(500.0, 4.5)
    assert (0, 1, -1) == (faster(first, lucky), faster(first, better), faster(better, first))
    assert 0 == faster(measured(1000.0, 2.0, 0.5), measured(700.0, 2.9, 0.5))
    assert "cannot be told" in describe_difference(first, lucky)
    assert "faster, 2 times by the times and 2.25 times by the ratios" in describe_difference(first, better)
    assert describe_difference(better, first).startswith("slower, 2 times")
    said = describe_order([first, better, lucky, None])
    assert "programs 1 and 3:" in said and "1 and 2" not in said and "" == describe_order([first, better])


def test_a_list_shows_the_measured_times_beside_the_ratio() -> None:
    """Median, interval, eager's own time then and the ratio with its interval, in one line."""
    plain = dataclasses.replace(evidence(), outcome=measured(1000.0, 2.0))
    line = describe_attempt(plain)
    assert "1000 us [980 to 1020]" in line and "2 times as fast as eager [1.96 to 2.04]" in line
    change = describe_change(plain, dataclasses.replace(plain, outcome=measured(1005.0, 4.0)))
    assert "Before: 1000 us" in change and "That is: which of the two is faster cannot be told" in change


def test_programs_to_be_contrasted_say_which_times_cannot_be_told_apart() -> None:
    """Reasons are asked for why some are fast: not where that is noise."""
    two = [dataclasses.replace(evidence(), outcome=measured(us, 2.0)) for us in (1000.0, 1010.0)]
    for kind in ("contrast", "cross"):
        assert (
            "cannot be told of programs 1 and 2" in wording("cpu", "cpp").request(Ask(kind=kind, others=tuple(two)))[1]
        )


def test_a_program_that_was_kept_from_the_judge_is_not_called_rejected() -> None:
    """A reader's guess is put as one: to whoever mends, and in the list of what was tried."""
    outcome = Rejected(stage="scan", reason=PREDICTED, detail="line 3 may overflow")
    guessed = dataclasses.replace(evidence(), outcome=outcome)
    text = wording("cpu", "cpp").request(Ask(kind="repair", parent=guessed, history=(describe_attempt(guessed),)))[1]
    assert "This program was not judged: a reader predicted that it fails" in text and "line 3 may overflow" in text
    assert "rejected at" not in text and "refused unread" not in text and "not judged: a reviewer predicted" in text
    plain = wording("cpu", "cpp").request(Ask(kind="repair", parent=evidence()))[1]
    assert 'rejected at the stage "verify"' in plain and "predicted" not in plain


def test_a_build_that_failed_is_listed_with_its_first_error() -> None:
    """Three programs that do not compile are three different mistakes."""
    detail = "kernel.cpp: In function 'f':\nkernel.cpp:3:1: error: 'i' was not declared\nkernel.cpp:9:1: error: other"
    outcome = Rejected(stage="build", reason="kernel.cpp does not compile", detail=detail)
    line = describe_attempt(dataclasses.replace(evidence(), outcome=outcome))
    assert line.endswith("rejected at build: kernel.cpp does not compile ('i' was not declared)")


def test_a_long_reason_is_cut_between_words_and_said_to_be() -> None:
    """Half a word at the end of a line reads as if it were all."""
    outcome = Rejected(stage="verify", reason="differs " * 60, detail="")
    line = describe_attempt(dataclasses.replace(evidence(), outcome=outcome))
    assert line.endswith("differs [...]") and len(line) < 320


def test_those_who_judge_lists_hear_what_the_brackets_mean() -> None:
    """Critic and summariser draw conclusions from outcomes: not from those that overlap."""
    for name, nouns in (("critic", {"advice": "a", "outcomes": ["x"]}), ("summariser", {"effects": ["x"]})):
        assert "95 % intervals in brackets" in Prompts().render(name, task="t", most=3, **nouns)


def test_the_compiler_is_named_with_what_it_may_use() -> None:
    """A command alone does not say which intrinsics compile."""
    about = {"toolchain": "g++ -march=native", "compiler": "g++ 12.2.0, which targets AVX2, FMA here"}
    assert (
        "with `g++ -march=native` (g++ 12.2.0, which targets AVX2, FMA here)." in wording("cpu", "cpp", **about).rules()
    )
    assert "()" not in wording("cpu", "cpp", toolchain="g++").rules().partition("Where it runs")[2][:600]


def test_modules_that_the_reference_imports_are_shown_with_it_up_to_a_size() -> None:
    """What they compute is what must be computed; a library would crowd out everything else."""
    task = dataclasses.replace(TASK, beside=(("layers.py", "def gate(x): 'THE GATE'\n"), ("zoo.py", "Z = 1\n" * 9000)))
    shown = Wording(task=task, device="cpu", machine=None, language="cpp", about=Surroundings()).task_text()
    assert shown.index("THE REFERENCE") < shown.index("# layers.py, which it imports:\ndef gate(x)")
    assert MOST_OF_MODULES < len(shown) < MOST_OF_MODULES + 2000
    assert "which it imports" not in wording("cpu", "cpp").task_text()
