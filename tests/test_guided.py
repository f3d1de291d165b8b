# SPDX-License-Identifier: Apache-2.0
"""The model-driven engine with a scripted model and a made-up judge: what costs device time, what is asked next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from kernelwright import recipes
from kernelwright.candidate import Candidate
from kernelwright.llm import Budget, Limits, Message, Reply, Speaker
from kernelwright.optimize.advised import Advised
from kernelwright.optimize.guided import Guided
from kernelwright.optimize.traits import traits
from kernelwright.proposers.agent import AgentProposer, Evidence
from kernelwright.task import Task
from kernelwright.trial import Outcome, Rejected, Timed, Timing, Verified

TASK = Task(name="relu", form="kernelbench", reference="class Model: pass")
CODE = "import torch\nclass ModelNew(torch.nn.Module):\n    SPEED = {speed}\n"


def timed(speed: float) -> Timed:
    """A Timed with this speedup; the proof is made up, the engine never looks inside."""
    proof = object.__new__(Verified)
    timing = Timing(samples_us=(100 / speed,), low_us=100 / speed, high_us=100 / speed)
    return Timed(
        proof=proof, timing=timing, baselines=(), best_baseline="eager", speedup=speed, speedup_low=speed,
        speedup_high=speed, bound_us=None, bound_fraction=None, limiter="memory", conditions=(), repeats=1, profile=(),
    )  # fmt: skip


class Bench:
    """Judges by the SPEED written in the source; rejects the slow half; counts what reached it."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.profiled: list[str] = []
        self.cases: list[str] = []

    def consider(self, candidate: Candidate, structure: str) -> Outcome | None:
        """Timed for a positive SPEED, Rejected for a negative one."""
        self.judged.append(candidate.digest())
        text = dict(candidate.sources)["kernel.py"]
        speed = float(text.split("SPEED = ")[1].split()[0])
        block = text.split("BLOCK = ")[1].split()[0] if "BLOCK = " in text else "1"
        if "BROKEN" in text:
            return Rejected(stage="build", reason="kernel.cpp: no", detail="kernel.cpp:3: error: no such name")
        if "RAISES" in text:
            reason = "raised CompilationError: at 6:12"
            return Rejected(stage="smoke", reason=reason, detail="kernel.cpp:3: error: no such name")
        if speed <= 0:
            return Rejected(stage="verify", reason="wrong", detail="wrong everywhere")
        return timed(speed * float(block))

    def build_ahead(self, candidate: Candidate) -> None:
        """Nothing to compile."""

    def static(self, candidate: Candidate) -> dict[str, float | str] | None:
        """The object that the source names; none for one that does not compile."""
        text = "\n".join(source for _, source in candidate.sources)
        if "BROKEN" in text:
            return None
        return {"object": text.split("OBJECT = ")[1].split()[0]} if "OBJECT = " in text else {}

    def profile(self, candidate: Candidate) -> dict[str, float | str]:
        """Facts of nothing, and a note that it was asked."""
        self.profiled.append(candidate.digest())
        return {}

    def sanitized(self, candidate: Candidate) -> Rejected | None:
        """A report for sources that say so."""
        text = "".join(text for _, text in candidate.sources)
        found = Rejected(stage="sanitize", reason="thread: data race", detail="WARNING: data race at line 7")
        return found if "RACES" in text else None

    def test_with(self, source: str) -> tuple[str, ...]:
        """Remember the cases; one of them counts."""
        self.cases.append(source)
        return ("case 'ones' is in force", "case 'huge' is not used: the reference is not finite there")

    def seconds_left(self) -> float:
        """For ever."""
        return 1.0


class Scripted:
    """A model whose reply is a function of what it hears and of how often it was asked."""

    name = "test:scripted"

    def __init__(self, answer: Callable[[str, int], str]) -> None:
        self.answer, self.heard = answer, []

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """The scripted reply."""
        text = messages[-1].text
        self.heard.append(text)
        reply = self.answer(text, len(self.heard))
        return Reply(text=reply, model=self.name, input_tokens=1, output_tokens=1, usd=0.0, finish="stop")

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """Free."""
        return 0.0


def engine(
    name: str, answer: Callable[[str, int], str], most: int = 8, **limits: int
) -> tuple[Guided, Bench, Scripted]:
    """A Guided search of one recipe over a scripted model and a made-up bench."""
    model, bench = Scripted(answer), Bench()
    speaker = Speaker(model, Budget(Limits(**limits)), patience=0.0)
    voice = AgentProposer(speaker=speaker, task=TASK, device="cpu", machine=None, language="torch")
    recipe = recipes.find(name)
    return Guided(recipe, {"one": voice}, bench, recipe.start(most, 0), most=most), bench, model


def program(speed: float, extra: str = "") -> str:
    """A reply with a program of this speed."""
    return f"Speed {speed}.\n```python kernel.py\n{CODE.format(speed=speed)}{extra}```"


def role(text: str, coder: str) -> str:
    """``coder`` for requests for programs; a fitting reply for every other role."""
    if '"expected_gain"' in text:
        return '{"bottleneck": "b", "change": "use float4", "expected_gain": 1.2}'
    if '"confidence"' in text:
        return '{"fails": false, "confidence": 0.6}'
    if '"kernels"' in text:
        return '{"kernels": [{"name": "all", "covers": "everything"}], "host": "none"}'
    if "cases()" in text:
        return "```python cases.py\ndef cases():\n    yield\n```"
    return coder


@pytest.mark.parametrize("name", sorted(recipes.load()))
def test_every_recipe_runs_to_its_budget_and_improves(name: str) -> None:
    """A model that gets better with each request: each recipe spends its candidates and ends near the last one."""
    guided, bench, _ = engine(name, lambda text, n: role(text, program(1 + n / 10)), most=14)
    guided.search()
    assert 14 == guided.tally.asked
    assert len(set(bench.judged)) == len(bench.judged)


def test_duplicates_and_near_duplicates_cost_no_device_time() -> None:
    """The same program with another comment and other spaces is judged once."""
    replies = [program(1.5), program(1.5), program(1.5, "    # changed\n\n"), program(2.5)]
    guided, bench, _ = engine("evolve", lambda text, n: role(text, replies[min(n // 2, 3)]), most=8)
    guided.search()
    assert (2, 6) == (len(bench.judged), guided.tally.duplicates)


def test_a_rejected_program_comes_back_for_repair_with_its_evidence() -> None:
    """The repair request shows the broken code, the stage and the detail; the adviser is asked first."""
    guided, _, model = engine("forge", lambda text, n: role(text, program(-1.0 if n == 1 else 2.0)), most=3)
    guided.search()
    repair = next(text for text in model.heard if text.startswith("This program was rejected at"))
    assert [True] * 3 == [part in repair for part in ("SPEED = -1.0", "wrong everywhere", "use float4")]
    assert {"verify": 1} == guided.tally.stages


@pytest.mark.parametrize(("name", "asked"), [("best", 0), ("forge", 1)])
@pytest.mark.parametrize(("mark", "stage"), [("BROKEN", "build"), ("RAISES", "smoke")])
def test_who_is_asked_about_a_compile_error_is_the_recipes_choice(
    name: str, asked: int, mark: str, stage: str
) -> None:  # fmt: skip
    """The coder repairs from the compiler's message alone, Triton's at a first call too; CudaForge's judge reads it
    first."""
    first = program(1.0, f"    # x\n    {mark} = 1\n")
    guided, _, model = engine(name, lambda text, n: role(text, first if n == 1 else program(2.0)), most=2)
    guided.search()
    reviews = [text for text in model.heard if text.startswith("You review a program that was rejected")]
    assert (asked, {stage: 1}) == (len(reviews), guided.tally.stages)
    repair = model.heard[-1]
    assert ("kernel.cpp:3: error: no such name" in repair, "use float4" in repair) == (True, asked == 1)


def test_a_reply_without_a_program_ends_nothing() -> None:
    """Prose, then programs: the prose is counted as malformed and the model is told what was wrong with it."""
    guided, bench, model = engine("fsr", lambda text, n: "I would rather not." if n == 1 else program(n), most=4)
    guided.search()
    assert (1, 3) == (guided.tally.malformed, len(bench.judged))
    assert model.heard[1].startswith("No program could be read from that reply: the reply has no fenced code block")


def test_the_budget_ends_the_search_quietly() -> None:
    """Three requests allowed: three made, and what was found stays."""
    guided, bench, model = engine("fsr", lambda text, n: program(n), most=50, requests=3)
    guided.search()
    assert (3, 3) == (len(model.heard), len(bench.judged))


@pytest.mark.parametrize("where", ["BLOCK <= 64 && BLOCK < 8", "BLOCK >= 1 * BLOCK.", "BLOCK = 4", "BLOCK ** 9 ** 9"])
def test_declared_tunables_are_fitted_before_the_structure_is_compared(where: str) -> None:
    """BLOCK 1 of {1, 2, 4}: the tuner finds 4, and that program stands for the structure, whatever else is said."""
    extra = f"# tunable BLOCK: 1, 2, 4\n# tunable BLOCK: 1, 2\n# where {where}\n"
    reply = program(1.0).replace("import torch\n", f"import torch\n{extra}BLOCK = 1\n")
    guided, _, _ = engine("best", lambda text, n: role(text, reply), most=1)
    guided.search()
    (shown,) = guided.shelf.known.values()
    assert "BLOCK = 4" in dict(shown.candidate.sources)["kernel.py"]
    first = 4 if where == "BLOCK = 4" else 1  # the made-up bench reads that line as the constant
    assert f"Values tried, in times as fast as eager: BLOCK 1: {first};" in shown.diagnosis
    assert shown.diagnosis.endswith("BLOCK 4: 4.")


def test_a_sure_prediction_of_failure_saves_the_device_and_is_counted() -> None:
    """Fails with confidence 0.95: nothing is judged; with 0.5 it is, and the guess is scored."""
    sure = '{"fails": true, "confidence": 0.95, "why": "no barrier"}'
    guided, bench, _ = engine("evolve", lambda text, n: sure if '"confidence"' in text else program(n), most=2)
    guided.search()
    assert (0, 2) == (len(bench.judged), guided.tally.predicted)
    unsure = sure.replace("0.95", "0.5")
    guided, bench, _ = engine("evolve", lambda text, n: unsure if '"confidence"' in text else program(n), most=2)
    guided.search()
    assert (2, 2, 0) == (len(bench.judged), guided.tally.prediction_misses, guided.tally.prediction_hits)


def test_traits_prefer_compiled_facts_to_the_source() -> None:
    """A program that mentions shared memory but compiled to none of it is not a shared-memory program."""
    source = "__global__ void f() { __shared__ float x[4]; float4 v; } // blockIdx.x"
    candidate = Candidate(task="t", language="cuda", entry="k.py::M", sources=(("k.cu", source),), proposer="p")
    facts = (("static_shared_bytes", "0"), ("wide_loads", "12"), ("tensor_instructions", "0"), ("kernels", "2"))
    read = dict(traits(candidate, dataclasses.replace(timed(1.0), profile=facts, bound_fraction=0.5)))
    guessed = dict(traits(candidate, timed(1.0)))
    assert ("shared", "vector", "2") == (guessed["memory"], read["memory"], read["fusion"])
    assert "0.5000" == read["proxy:bound"]


def test_cells_of_cpu_programs_come_from_the_object() -> None:
    """Two programs of equal text: the one whose loops were vectorised is in another cell than the other."""
    candidate = Candidate(task="t", language="cpp", entry="k.py::M", sources=(("k.cpp", "simd"),), proposer="p")
    base = (("floating_instructions", "100"), ("widest_bits", "512"), ("parallel_regions", "1"), ("math_calls", "3"))

    def cell(packed: str) -> dict[str, str]:
        profile = (*base, ("packed_instructions", packed), ("object", "ab"))
        return dict(traits(candidate, dataclasses.replace(timed(1.0), profile=profile)))

    assert ("vector512", "scalar") == (cell("90")["memory"], cell("3")["memory"])
    assert ("regions", "1", "calls") == (cell("90")["parallel"], cell("90")["fusion"], cell("90")["tensor"])


def test_two_sources_with_one_object_cost_the_device_once() -> None:
    """Another name of a variable in a compiled file: the object is the same, and so is the outcome."""
    replies = [program(1.5, "    OBJECT = one\n"), program(1.5, "    OBJECT = one\n    unused = 1\n")]
    guided, bench, _ = engine("fsr", lambda text, n: replies[n - 1], most=2)
    bench.static = lambda candidate: {"object": "one"}  # type: ignore[method-assign]  # the Python file counts too
    guided.search()
    assert (2, 0) == (len(bench.judged), guided.tally.duplicates)
    native = "```cpp kernel.cpp\nint {name};\n```\n"
    replies = [native.replace("{name}", name) + program(1.5) for name in ("a", "b")]
    guided, bench, _ = engine("fsr", lambda text, n: replies[n - 1], most=2)
    bench.static = lambda candidate: {"object": "one"}  # type: ignore[method-assign]
    guided.search()
    assert (1, 1, 1) == (len(bench.judged), guided.tally.duplicates, guided.tally.costs["same object"].count)


def test_only_new_bests_are_profiled() -> None:
    """Speeds 1, 3, 2, 4: the first and the second are observed more closely, the third is not, and of the last one
    nobody would read what was observed."""
    speeds = iter((1.0, 3.0, 2.0, 4.0))
    guided, bench, _ = engine("fsr", lambda text, n: program(next(speeds)), most=4)
    guided.search()
    assert (4, bench.judged[:2]) == (len(bench.judged), bench.profiled)


def test_a_race_is_mended_before_the_device_is_used() -> None:
    """The report of the detector is the request for repair; the racing program is never judged."""
    native = "```cpp kernel.cpp\nint own;\n```\n"
    replies = [native + program(9.0, "    RACES = 1\n"), native + program(2.0)]
    guided, bench, model = engine("parevo", lambda text, n: replies[min(n - 1, 1)], most=2)
    guided._strategy = recipes.find("fsr").start(2, 0)  # a strategy that repairs at once
    guided.search()
    assert model.heard[1].startswith("A race detector ran this program") and "data race at line 7" in model.heard[1]
    assert (1, 1) == (len(bench.judged), guided.tally.costs["sanitize"].count)


def test_a_program_that_is_nearly_right_is_told_so_with_what_its_object_shows() -> None:
    """A few bits lost are rounding, thousands are not; what was compiled is known of rejected programs too."""
    guided, bench, model = engine("fsr", lambda text, n: role(text, program(float(n))), most=3)
    lost = iter(("1.2", "19.7"))
    said = "main: as given: RMS error is x times the honest error"
    bench.consider = lambda *_: Rejected(  # type: ignore[method-assign]
        stage="smoke", reason=f"{said} ({next(lost, '3')} bits lost)", detail=""
    )
    bench.static = lambda _: {"widest_bits": 256.0, "machine_bits": 512.0}  # type: ignore[method-assign]
    guided.search()
    assert "formula is right and its rounding is not" in model.heard[1] and "rounding is not" not in model.heard[2]
    assert "vectors of 256 of 512 bits" in model.heard[1] and "vectors of 256" not in model.heard[2]


def test_cases_of_the_tester_are_in_force_before_the_first_candidate_is_judged() -> None:
    """The recipe with a tester hands over its source; recipes without one never ask."""
    guided, bench, model = engine("mutual", lambda text, n: role(text, program(n)), most=2)
    guided.search()
    assert (1, 1, True) == (len(bench.cases), guided.tally.tests, "def cases" in bench.cases[0])
    assert "Write inputs on which" in model.heard[0]


def test_a_tester_hears_which_of_its_cases_count_and_what_they_caught() -> None:
    """The second request shows the judge's word on each case of the first, not every failure of every program."""
    guided, _, model = engine("mutual", lambda text, n: role(text, program(n if n != 4 else -1)), most=9)
    guided.search()
    asked = [text for text in model.heard if "Write inputs on which" in text]
    assert 2 == len(asked) and "What your earlier inputs did" not in asked[0]
    assert "- case 'huge' is not used: the reference is not finite there" in asked[1]
    assert "programs passed every case" in asked[1] and "wrong everywhere" not in asked[1]


@pytest.mark.parametrize("name", ["best", "contrast", "elites", "mutual"])
def test_a_source_that_cannot_be_judged_here_is_what_models_begin_with(name: str) -> None:
    """A CUDA file given on a machine that has none: whatever the recipe, the next request is to translate it."""
    guided, bench, model = engine(name, lambda text, n: role(text, program(n)), most=3)
    sources = (("k.cu", "__global__"),)
    source = Candidate(task=TASK.digest(), language="cuda", entry="", sources=sources, proposer="start")
    guided._start = [source]
    judge = bench.consider
    bench.consider = lambda one, structure: judge(one, structure) if one.entry else None  # type: ignore[method-assign]
    guided.search()
    coder = next(text for text in model.heard if "How to answer" in text)
    assert coder.startswith("Translate this CUDA C++ program to PyTorch") and "__global__" in coder
    assert 2 == len(bench.judged)


def test_a_translator_begins_with_the_reference_where_nothing_was_given() -> None:
    """The recipe whose paper translates asks for that first; the reference stands in the request once."""
    guided, _, model = engine("mutual", lambda text, n: role(text, program(n)), most=2)
    guided.search()
    coder = next(text for text in model.heard if "How to answer" in text)
    assert coder.startswith("Translate the reference below to PyTorch")
    assert 1 == coder.count(TASK.reference)


def test_advice_that_was_paid_for_stands_in_the_request_that_is_sent_again() -> None:
    """A coder that answered without a program is asked again with the adviser's words in the same first message."""
    guided, _, model = engine(
        "forge", lambda text, n: role(text, "Hm." if "Make this one change" in text else program(n)), most=3
    )
    whole: list[Sequence[Message]] = []
    complete = model.complete
    model.complete = lambda messages, **more: whole.append(messages) or complete(messages, **more)  # type: ignore
    guided.search()
    again = next(messages for messages in whole if "No program could be read" in messages[-1].text)
    assert "Make this one change" in again[1].text and "use float4" in again[1].text and again[2].text == "Hm."


def test_what_was_tried_is_told_to_whoever_writes_next() -> None:
    """The third request lists the first two programs with their times."""
    guided, _, model = engine("forge", lambda text, n: role(text, program(1 + n / 10)), most=3)
    guided.search()
    last = next(text for text in reversed(model.heard) if "Make this program faster" in text)
    assert 2 == sum(line.startswith("- Speed") and "times as fast as eager" in line for line in last.splitlines())


def test_every_fourth_sure_alarm_is_checked_so_that_precision_is_known() -> None:
    """Eight alarms at 0.95: two are judged all the same, both wrong, and the precision says so."""
    sure = '{"fails": true, "confidence": 0.95, "why": "no barrier"}'
    guided, bench, _ = engine("evolve", lambda text, n: sure if '"confidence"' in text else program(n), most=8)
    guided.search()
    found = guided.tally.to_json()["verifier"]
    assert (2, 6, 0.0) == (len(bench.judged), guided.tally.predicted, found["precision"])


def test_an_adviser_is_shown_earlier_advice_and_what_was_measured_of_it() -> None:
    """The promise, the measured effect or the rejection; the latest four, and nobody else's prompt grows by them."""
    written = iter([1.0, 2.0, -1.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    guided, _, model = engine("forge", lambda text, n: role(text, "") or program(next(written)), most=8)
    guided.search()
    asked = [text for text in model.heard if '"expected_gain": 1.3' in text]
    assert "Advice given before" not in asked[0]
    line = "- use float4: expected 1.20 times as fast, measured: faster, 2 times by the times and 2 times by the ratios"
    assert line in asked[1] and "(made of it: Speed 2.0)" in asked[1]
    assert any("expected 1.20 times as fast, rejected at verify: wrong" in text for text in model.heard)
    assert 4 == sum(row.startswith("- use float4") for row in asked[-1].splitlines())
    assert not any("Advice given before" in text for text in model.heard if '"expected_gain"' not in text)


def test_no_advice_is_paid_for_that_nobody_would_read() -> None:
    """Eight candidates and no more: the critic, who is asked after eight, is not; of sixteen it is asked once."""
    for most, count in ((8, 0), (16, 1)):
        guided, _, model = engine("elites", lambda text, n: program(n), most=most)
        guided.search()
        assert count == sum("Rewrite the advice" in text for text in model.heard)


def test_advice_that_brought_nothing_new_is_shown_as_such_and_predicts_nothing() -> None:
    """A coder that sends the same program again, and one whose gain is within the noise: no gradient follows."""
    advised = Advised()
    code = Candidate(task="t", language="torch", entry="k.py::M", sources=(("k.py", "pass"),), proposer="p")
    base = Evidence(candidate=code, outcome=timed(2.0), diagnosis="")
    noisy = dataclasses.replace(base, outcome=dataclasses.replace(timed(2.1), speedup_low=1.0, speedup_high=4.0))
    advised.add("change: fuse", 1.5, base, base, again=True)
    advised.add("change: tile", 1.5, base, noisy, again=False)
    advised.add("", 1.0, base, noisy, again=False)
    assert ["tried before" in advised.lines()[0], "cannot be told" in advised.lines()[1]] == [True, True]
    assert (2, []) == (len(advised.lines()), advised.predictions(8))
    advised.add("bottleneck: b\nchange: half", 2.0, base, dataclasses.replace(base, outcome=timed(4.0)), again=False)
    assert ["half: expected 2.00"] == [line[:19] for line in advised.predictions(8)]
