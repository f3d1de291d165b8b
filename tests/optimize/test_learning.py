# SPDX-License-Identifier: Apache-2.0
"""optimize/learning.py: what a run leaves in the user's store, what ships with it, and what goes out again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_modelled import HOST, TASK, asked, go, program, verdict

import kernelwright
from kernelwright.errors import BadCommand, KernelwrightError, NoSuchRun
from kernelwright.llm import speaker
from kernelwright.model_server import ScriptedServer
from kernelwright.optimize import Options, Services, learning, optimize_task
from kernelwright.testing import FakeHost, FakeWorker

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own, without the shipped effects."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(learning, "SEED", tmp_path / "none.jsonl")
    monkeypatch.setattr(speaker, "FIRST_WAIT_S", 0.0)
    return tmp_path


def test_a_run_teaches_what_its_edits_did_once(tmp_path: Path) -> None:
    """60 to 40 to 20 us: two edits with their ratios; reading the run again adds nothing."""
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40, 20)]) as server:
        go(tmp_path / "run", asked(server, max_candidates=3))
    rows = kernelwright.list_knowledge()
    assert [[1.5], [2.0]] == sorted([round(r, 6) for r in ratios] for ratios in _each(rows))
    assert ("op:relu" in rows[0]["features"], 0) == (True, kernelwright.learn(tmp_path / "run"))


def _each(rows: list[dict[str, object]]) -> list[list[float]]:
    return [[ratio] for row in rows for ratio in row["ratios"]]  # type: ignore[attr-defined]  # a list of numbers


def test_knowledge_travels_as_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exported here, imported elsewhere, twice: the same effects, once."""
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40)]) as server:
        go(tmp_path / "run", asked(server, max_candidates=2))
    before = kernelwright.list_knowledge()
    assert 1 == kernelwright.export_knowledge(tmp_path / "out.jsonl")
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "elsewhere"))
    assert [] == kernelwright.list_knowledge()
    assert [1, 1] == [kernelwright.import_knowledge(tmp_path / "out.jsonl") for _ in range(2)]
    assert before == kernelwright.list_knowledge()


def test_what_a_run_knew_stays_what_it_knew(tmp_path: Path) -> None:
    """A recipe that shows knowledge replays the same after the store has grown."""
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40, 30)]) as server:
        go(tmp_path / "one", asked(server, max_candidates=3))
        go(tmp_path / "two", asked(server, recipe="contrast", max_candidates=3))
        assert kernelwright.replay(tmp_path / "one")["identical"]
        assert kernelwright.replay(tmp_path / "two")["identical"]


def test_the_shipped_effects_are_measured_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names its machine and holds a ratio or a failure, and a fresh store starts with all of them."""
    monkeypatch.undo()
    lines = learning.SEED.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) > 100
    assert [] == [row for row in rows if not row["machine"] or not (row["ratios"] or row["failures"])]


def test_the_store_is_damaged_and_the_run_ends_well(tmp_path: Path) -> None:
    """A note says that nothing was learnt; the result stands."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / learning.STORE).write_bytes(b"not a database, but long enough to look like one" * 100)
    services = Services("cpu", worker=FakeWorker(verdict), host=FakeHost(HOST))
    result = optimize_task(TASK, Options(budget_seconds=5), out=tmp_path / "run", services=services)
    assert result.status in ("faster", "not-faster")
    assert "nothing was learnt" in (tmp_path / "run" / "events.jsonl").read_text()


def test_operators_of_a_reference_are_named() -> None:
    """Calls of its classes and the @ of matrices; code outside classes does not count."""
    body = "    def forward(self, x):\n        return torch.softmax(x @ x, 0)\n"
    source = f"import torch\ntorch.randn(2)\nclass Model:\n{body}"
    assert ["matmul", "softmax"] == learning.operators(source)
    assert [] == learning.operators("def broken(:")


def test_mistakes_with_knowledge_and_data_are_clear(tmp_path: Path) -> None:
    """No such file, not an export, no such run."""
    with pytest.raises(KernelwrightError, match="nothing to import"):
        kernelwright.import_knowledge(tmp_path / "nowhere.jsonl")
    (tmp_path / "odd.jsonl").write_text("[1]\n")
    with pytest.raises(KernelwrightError, match="line 1"):
        kernelwright.import_knowledge(tmp_path / "odd.jsonl")
    with pytest.raises(BadCommand, match="cannot be written"):
        kernelwright.export_knowledge(tmp_path / "no" / "folder.jsonl")
    for verb in (kernelwright.learn, kernelwright.replay, lambda run: kernelwright.export_data([run], tmp_path / "d")):
        with pytest.raises(NoSuchRun):
            verb(tmp_path / "norun")


def test_a_run_gives_training_records_with_its_proofs(tmp_path: Path) -> None:
    """The proved reply with its prompt and proof, and a card that counts it."""
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40, 20)]) as server:
        go(tmp_path / "run", asked(server, max_candidates=3))
    counts = kernelwright.export_data([tmp_path / "run"], tmp_path / "data")
    records = [json.loads(line) for line in (tmp_path / "data" / "supervised.jsonl").read_text().splitlines()]
    assert (counts["supervised"], True) == (len(records), len(records) >= 1)
    assert "SPEED = 20" in records[0]["completion"][0]["content"] and records[0]["proof"]["speedup_low"] > 1
    assert "Data card" in (tmp_path / "data" / "DATA_CARD.md").read_text()


def test_operations_of_a_function_beside_the_module_count_and_those_of_its_inputs_do_not() -> None:
    """A function given from Python stands beside a module that only calls it."""
    source = (
        "import torch\ndef forward(a):\n    return torch.exp(a).sum(-1) @ a\nclass Model(torch.nn.Module):\n"
        "    def forward(self, a):\n        return forward(a)\ndef get_inputs():\n    return [torch.randn(4).abs()]\n"
    )
    assert ["exp", "matmul", "sum"] == learning.operators(source)
