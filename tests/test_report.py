# SPDX-License-Identifier: Apache-2.0
"""The report: complete, self-contained, escaped, honest about failure, and quick on a large ledger."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
from pathlib import Path

import pytest

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import LedgerCorrupt, NoSuchRun, RunFolderError
from kernelwright.ledger import open_ledger
from kernelwright.machine import Fact, Machine
from kernelwright.report import charts, gather, markdown, write
from kernelwright.report import html as html_of
from kernelwright.task import Contract, Task
from kernelwright.trial import Rejected, Timed, Trial

EVIL = "<script>alert('x')</script>"
REFERENCE = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + x\n"
MACHINE = Machine(
    device="cpu",
    name="Test CPU " + EVIL,
    fingerprint="m1",
    versions=(("torch", "2.13.0"),),
    facts=(
        Fact(name="bandwidth.copy.dram_GBps", value=20.5, unit="GB/s", spread=0.02, note=""),
        Fact(name="peak.gemm.bf16_TFLOPs", value=None, unit="TFLOP/s", spread=0.0, note="no such unit here"),
    ),
    measured_at=0.0,
)


def timed(speedup: float = 3.0, bits_lost: float = 0.25) -> Timed:
    """A timed outcome against two baselines, of which compile is the better."""
    timing = {"samples_us": [10.0, 11.0, 12.0], "low_us": 10.5, "high_us": 11.5}

    def against(name: str, factor: float) -> dict[str, object]:
        slower = {key: value * factor for key, value in timing.items() if key != "samples_us"}
        slower["samples_us"] = [value * factor for value in timing["samples_us"]]
        ends = {"speedup_low": factor * 0.9, "speedup_high": factor * 1.1}
        return {"name": name, "timing": slower, "speedup": factor, **ends}

    case = {"name": f"odd {EVIL}", "required": True, "passed": True, "detail": "", "error_ratio": 1.2, "calls": 5}
    probe = {
        "name": "transposed",
        "required": False,
        "passed": False,
        "detail": "wrong",
        "error_ratio": float("inf"),
        "calls": 1,
    }
    data = {
        "proof": {
            "cases": [case, probe], "outputs": 1, "checked_calls": 6, "error_ratio": 1.2, "bits_lost": bits_lost,
            "oracle": "float64", "deterministic": True, "seed": 41, "sandbox": "user namespace, Landlock",
            "notes": ["transposed inputs fall back"],
        },
        "timing": timing, "baselines": [against("eager", 2 * speedup), against("compile", speedup)],
        "best_baseline": "compile", "speedup": speedup, "speedup_low": speedup * 0.9, "speedup_high": speedup * 1.1,
        "bound_us": 8.0, "bound_fraction": 0.73, "limiter": "memory", "conditions": ["cold cache"], "repeats": 2,
        "profile": [],
    }  # fmt: skip
    return wire.from_data(Timed, data)


def candidate(name: str, note: str = "") -> Candidate:
    """A candidate that differs from others by its name."""
    source = REFERENCE.replace("class Model", "class ModelNew") + f"# {name} {EVIL} ```\n"
    return Candidate(
        task="t", language="cpp", entry="fast.py::ModelNew", sources=(("fast.py", source), ("k.cpp", f"// {EVIL}\n")),
        tunables=(("THREADS", 2),), proposer="templates", note=note or name,
    )  # fmt: skip


def trial(made: Candidate, outcome: Timed | Rejected, level: str, at: float) -> Trial:
    """A trial recorded ``at`` seconds after the start."""
    return Trial(
        candidate=made, outcome=outcome, level=level, machine="m1", versions=MACHINE.versions, seconds=1.5,
        started_at=1000.0 + at,
    )  # fmt: skip


def run(folder: Path, trials: list[Trial], *, contract: Contract | None = None, **changes: object) -> Path:
    """A run folder holding these trials; the last precise one is its winner."""
    task = Task(name="twice", form="folder", reference=REFERENCE, contract=contract or Contract())
    winners = [t for t in trials if t.level == "precise"]
    record = {
        "kernelwright": "0.1.0", "python": "3.11", "task": wire.to_data(task), "started_at": 1000.0,
        "options": {"device": "cpu", "budget_seconds": 60.0, "seed": 0, "proposers": [], "start": []},
        "status": "faster", "message": "done", "machine": wire.to_data(MACHINE),
        "admission": {"admitted": True, "decoys": [["zeros", "verify"], ["ones", "verify"]]},
        "result": {"winner": {"candidate": winners[-1].candidate.digest()} if winners else None},
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(record | changes))
    ledger = open_ledger(folder / "ledger.sqlite")
    for one in trials:
        ledger.record(one, f"templates/{one.candidate.note[:20]}")
    ledger.close()
    return folder


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A finished run with a rejection, two coarse results and a proof."""
    winner = candidate("b", f"fused {EVIL}")
    wrong = Rejected(stage="verify", reason=f"differs on odd {EVIL} | x", detail="")
    return run(
        tmp_path / "run",
        [
            trial(candidate("a"), timed(1.5), "coarse", 1.0),
            trial(candidate("c"), wrong, "coarse", 2.0),
            trial(winner, timed(6.0), "coarse", 3.0),
            trial(winner, timed(3.0), "precise", 9.0),
        ],
    )


class Page(html.parser.HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag; void elements and closed SVG shapes are not kept open."""
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A closed shape."""
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Tags close in order."""
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        """Collect the words."""
        if self.open and self.open[-1] != "style":
            self.text += data + " "


def words(path: Path) -> str:
    """The visible text of a page with single spaces."""
    return re.sub(r"\s+", " ", Page(path.read_text()).text)


def test_the_headline_names_the_best_baseline_and_the_precision_beside_it(full: Path) -> None:
    """Not the larger number against eager; that stands behind, with bits lost and the interval."""
    text = words(write(full))

    assert "3.00x faster than compile, the best baseline" in text
    assert "95 % interval 2.70 to 3.30" in text
    assert "0.25 bits lost against eager" in text
    assert "6.00x against eager" in text


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(full: Path) -> None:
    """Well-formed, no script, no link, no import, a viewport for phones, both colour schemes."""
    text = write(full).read_text()
    page = Page(text)

    assert [] == page.open
    assert [] == page.links
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?://", text)
    assert 'name="viewport"' in text and "prefers-color-scheme: dark" in text
    assert 2 == page.tags.count("svg")


def test_text_of_candidates_cannot_become_markup(full: Path) -> None:
    """Notes, reasons, sources, case names and machine names are shown as text, in every place."""
    text = write(full).read_text()

    assert EVIL not in text
    assert 6 <= text.count("&lt;script&gt;")
    assert EVIL in Page(text).text


def test_markdown_keeps_hostile_text_inside_its_cell_and_fence(full: Path) -> None:
    """Pipes and tags in cells are escaped; backticks in code cannot close the fence."""
    write(full)
    text = (full / "report.md").read_text()
    outside = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.S | re.M)

    assert "<script>" not in outside
    assert "````diff" in text
    assert all(6 == len(re.findall(r"(?<!\\)\|", line)) for line in outside.splitlines() if "templates/" in line)


def test_every_section_is_there(full: Path) -> None:
    """Asked, tried, won, code, cases, conditions, machine: with their facts."""
    text = words(write(full))
    expected = [
        "What was asked", "at most 1 bit lost", "2 known-wrong programs", "What was tried", "4 judgements",
        "rejected at verify", "differs on odd", "What won, and why", "THREADS = 2", "The code: reference against",
        "+class ModelNew", "-class Model", "k.cpp", "Cases checked", "failed (probe)", "Conditions", "cold cache",
        "user namespace, Landlock", "41", "Machine and versions", "20.5", "not measured", "torch", "8.00 us",
        "73 %", "memory",
    ]  # fmt: skip

    assert [] == [part for part in expected if part not in text]


def test_the_json_form_is_the_data_of_the_page(full: Path) -> None:
    """Strict JSON (no NaN, no Infinity), with numbers as recorded."""
    write(full)
    data = json.loads((full / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))

    assert (True, "compile", 3.0) == (data["won"], data["best"]["best_baseline"], data["best"]["speedup"])
    assert [1.5, 6.0] == [point["speedup"] for point in data["tried"]["trajectory"]["coarse"]]
    assert data["best"]["cases"][1]["error_ratio"] is None


def test_a_run_that_found_nothing_says_so(tmp_path: Path) -> None:
    """An interval that touches one is no win, whatever the median says."""
    slow = trial(candidate("a"), timed(1.05), "precise", 2.0)
    text = words(write(run(tmp_path / "r", [slow], status="not-faster", result={"winner": None})))

    assert "Nothing honest beats the baseline" in text
    assert "the best attempt runs at 1.05x of compile" in text
    assert "faster than" not in text


def test_what_proposers_left_out_is_told_once(tmp_path: Path) -> None:
    """A resumed run notes it again; other notes are not about it; a killed run leaves half a line."""
    made = run(tmp_path / "r", [trial(candidate("a"), timed(1.05), "precise", 2.0)])
    told = {"kind": "note", "text": "rewrites: no laws are tried: <b>operator</b>", "proposer": "rewrites"}
    lines = [json.dumps(event) for event in (told, {"kind": "note", "text": "something else"}, told)]
    (made / "events.jsonl").write_text("\n".join([*lines, lines[0][:20]]))
    text = words(write(made))
    assert 1 == text.count("rewrites: no laws are tried: <b>operator</b>")
    assert "something else" not in text
    assert "left out: rewrites: no laws" in (made / "report.md").read_text()


def test_a_loosened_contract_is_stated_beside_the_speedup(tmp_path: Path) -> None:
    """Precision given away is part of the headline."""
    won = trial(candidate("a"), timed(3.0, bits_lost=7.5), "precise", 2.0)
    text = words(write(run(tmp_path / "r", [won], contract=Contract(bits_lost=8.0))))

    assert "7.50 bits lost against eager, both measured against float64; the caller allowed 8 bits" in text


def test_an_unmeasured_machine_and_a_killed_run_are_reported(tmp_path: Path) -> None:
    """No bound, no machine, no ledger yet: a page all the same."""
    unbound = dataclasses.replace(timed(), bound_us=None, bound_fraction=None, limiter="unknown")
    folder = run(tmp_path / "r", [trial(candidate("a"), unbound, "precise", 2.0)], machine=None, status="running")
    assert "There is no bound" in words(write(folder))

    empty = run(tmp_path / "e", [], status="running", message="", result=None)
    (empty / "ledger.sqlite").unlink()
    assert "No candidate was judged" in words(write(empty))
    (empty / "ledger.sqlite").touch()
    assert "No candidate was judged" in words(write(empty))


@pytest.mark.parametrize("limiter", ["memory", "compute"])
def test_a_bound_of_memory_traffic_is_called_so_whatever_limits_the_task(tmp_path: Path, limiter: str) -> None:
    """Arithmetic may hold the task as it is written, and a rewrite may need less of it: the bound counts bytes."""
    trials = [trial(candidate("b"), dataclasses.replace(timed(3.0), limiter=limiter), "precise", 9.0)]
    data = gather(run(tmp_path / "r", trials))
    for text in (html_of(data), markdown(data)):
        assert " of memory traffic" in text
        assert (", though the task as written is limited by compute" in text) is (limiter == "compute")


def test_only_rejections_make_a_page_too(tmp_path: Path) -> None:
    """Nothing timed: no chart, but every reason."""
    lost = trial(candidate("a"), Rejected(stage="build", reason="does not compile", detail=""), "coarse", 1.0)
    text = words(write(run(tmp_path / "r", [lost], status="not-faster", message="Nothing honest beats it.")))

    assert "Nothing honest beats it." in text and "does not compile" in text


def test_bad_folders_have_clear_errors(tmp_path: Path, full: Path) -> None:
    """No run, a run.json of another kind, and a damaged ledger are told apart."""
    with pytest.raises(NoSuchRun):
        write(tmp_path / "nowhere")
    (full / "ledger.sqlite").write_bytes(b"rubbish" * 1000)
    with pytest.raises(LedgerCorrupt):
        write(full)
    (full / "run.json").write_text('{"task": 3}')
    with pytest.raises(RunFolderError):
        write(full)


def test_a_long_ledger_is_shown_in_part_and_counted_in_full(tmp_path: Path) -> None:
    """The fastest rows are listed; the counts cover all."""
    trials = [trial(candidate(f"n{i}"), timed(1.0 + i / 1000), "coarse", i) for i in range(230)]
    write(run(tmp_path / "r", trials, result=None))
    data = json.loads((tmp_path / "r" / "report.json").read_text())

    assert (230, 150) == (data["tried"]["count"], len(data["tried"]["rows"]))
    assert 1.229 == data["tried"]["rows"][0]["speedup"]


def test_bars_share_one_scale_and_the_bound_lies_on_it(full: Path) -> None:
    """Lengths are proportional to medians; the longest interval fits the chart."""
    best = gather(full)["best"]
    found = {bar.label: bar for bar in charts.bars(best).bars}

    assert pytest.approx(6.0) == found["eager"].length / found["optimized"].length
    assert pytest.approx(8.0 / 11.0) == charts.bars(best).bound / found["optimized"].length
    assert max(bar.high for bar in found.values()) <= charts.WIDTH


def test_axis_steps_are_round() -> None:
    """1, 2, 5 times a power of ten, never less than asked."""
    assert [0.2, 1.0, 5.0, 20.0, 100.0] == [charts.round_step(raw) for raw in (0.15, 1.0, 3.1, 12.0, 60.0)]
    assert ["1.50 us", "15.0 ms", "2.00 s", "0.25 us"] == [charts.micros(v) for v in (1.5, 15e3, 2e6, 0.25)]


def test_the_cost_of_a_run_and_of_a_call_stand_with_their_grid(tmp_path: Path) -> None:
    """Device-hours, kWh, kg CO2e and the factor; a run without a counter says that its energy was not measured."""
    grid = {"kg_CO2e_per_kWh": 0.05, "source": "as given"}
    cost = {"device": "cuda:0", "device_hours": 0.5, "kWh": 0.25, "kg_CO2e": 0.0125, "grid": grid, "note": "counter"}
    trials = [trial(candidate("b"), timed(3.0), "precise", 9.0)]
    energy = {"mJ": 75.5, "watts": 540.0, "note": "advisory"}
    data = gather(run(tmp_path / "a", trials, cost=cost, energy=energy))
    for text in (html_of(data), markdown(data)):
        for part in ("0.5 device-hours (cuda:0), 0.25 kWh, 0.0125 kg CO2e", "0.05 kg CO2e per kWh", "75.5 mJ at 540 W"):
            assert part in text
    unmeasured = {**cost, "kWh": None, "kg_CO2e": None, "note": "no counter"}
    without = markdown(gather(run(tmp_path / "b", trials, cost=unmeasured)))
    assert "0.5 device-hours (cuda:0); energy not measured" in without
    assert "device-hours" not in html_of(gather(run(tmp_path / "c", trials)))
