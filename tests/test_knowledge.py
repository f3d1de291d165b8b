# SPDX-License-Identifier: Apache-2.0
"""Effects merge, are learnt once from a ledger, and are found by structure before words."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest

from kernelwright.candidate import Candidate
from kernelwright.errors import KernelwrightError, LedgerCorrupt, RunFolderUnwritable
from kernelwright.knowledge import Effect, Knowledge, task_features
from kernelwright.ledger import open_ledger
from kernelwright.trial import Rejected, Timed, Timing, Trial, Verified

BASE = Effect(
    machine="m", features=("op:mm", "rank:2"), diagnosis="memory", edit="vector loads", language="cuda", ratios=(1.2,),
    failures=0,
)  # fmt: skip


def made(**changes: object) -> Effect:
    """BASE with changes."""
    return dataclasses.replace(BASE, **changes)  # type: ignore[arg-type]


def trial(name: str, median_us: float | None, parent: str = "", **tunables: int) -> Trial:
    """A coarse trial with a made-up proof, or a rejection where there is no time."""
    candidate = Candidate(
        task="t", language="cpp", entry="k.py::M", sources=(("k.py", name),), proposer="p", note=name, parent=parent,
        tunables=tuple(tunables.items()),
    )  # fmt: skip
    outcome: Timed | Rejected = Rejected(stage="verify", reason="wrong", detail="")
    if median_us is not None:
        proof = object.__new__(Verified)
        for field in dataclasses.fields(Verified):
            empty = {"cases": (), "notes": (), "oracle": "float64", "sandbox": "", "deterministic": True}
            object.__setattr__(proof, field.name, empty.get(field.name, 1))
        timing = Timing(samples_us=(median_us,), low_us=median_us, high_us=median_us)
        outcome = Timed(
            proof=proof, timing=timing, baselines=(), best_baseline="eager", speedup=1.0, speedup_low=1.0,
            speedup_high=1.0, bound_us=None, bound_fraction=None, limiter="memory", conditions=(), repeats=1,
            profile=(),
        )  # fmt: skip
    return Trial(
        candidate=candidate, outcome=outcome, level="coarse", machine="f", versions=(), seconds=0.1, started_at=1.0
    )


def test_equal_edits_merge_and_failures_count(tmp_path: Path) -> None:
    """Two ratios and one failure of the same edit are one effect with n=2 and one failure."""
    with Knowledge(tmp_path / "k.sqlite") as store:
        store.add(BASE)
        store.add(made(ratios=(1.5,)))
        store.add(made(ratios=(), failures=1))
        (found,) = store
    assert ((1.2, 1.5), 1) == (found.ratios, found.failures)
    assert "n=2" in found.line() and "failed 1 time" in found.line()
    assert made(ratios=(), failures=2).line().startswith("vector loads: never worked; failed 2")


def test_a_ledger_is_learnt_once(tmp_path: Path) -> None:
    """Parent 100 us, child 50 us: ratio 2; a rejected child is a failure; reading again changes nothing."""
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    parent = trial("parent", 100.0, BLOCK=256)
    digest = parent.candidate.digest()
    for one in (parent, trial("child", 50.0, digest, BLOCK=512), trial("broken idea", None, digest)):
        ledger.record(one)
    with Knowledge(tmp_path / "k.sqlite") as store:
        assert (2, 0) == (store.learn(ledger, "cpu", ["op:mm"]), store.learn(ledger, "cpu", ["op:mm"]))
        found = {effect.edit: (effect.ratios, effect.failures) for effect in store}
    assert {"BLOCK 256 to 512": ((2.0,), 0), "broken idea": ((), 1)} == found


def test_of_programs_that_share_only_their_weights_nothing_is_shown(tmp_path: Path) -> None:
    """``nn.Parameter`` and ``torch.randn`` are in every reference: 90 times by a rewrite of a diagonal product is no
    news for a norm, and would be the largest gain shown."""
    common = ("dtype:float32", "op:parameter", "op:randn", "rank:2")
    with Knowledge(tmp_path / "k.sqlite") as store:
        store.add(made(features=(*common, "op:diag", "op:matmul"), edit="the diagonal is a scale", ratios=(90.0,)))
        store.add(made(features=(*common, "op:mean"), edit="rows stay in cache", ratios=(3.0,)))
        store.add(made(features=(*common,), edit="of no known operation", ratios=(2.0,)))
        found = store.retrieve([*common, "op:mean", "op:rsqrt"], most=4)
        assert ["rows stay in cache", "of no known operation"] == [effect.edit for effect in found]


def test_structure_comes_before_words(tmp_path: Path) -> None:
    """An effect on the same operators is preferred to one whose words match; words decide among equals."""
    with Knowledge(tmp_path / "k.sqlite") as store:
        store.add(made(features=("op:softmax",), edit="online softmax with float4"))
        store.add(made(features=("op:conv", "op:relu"), edit="tile the matrix product in shared memory"))
        store.add(made(features=("op:conv", "op:relu"), edit="persistent blocks"))
        found = store.retrieve(["op:softmax"], words="tile matrix product", most=3)
    assert ["online softmax with float4", "tile the matrix product in shared memory"] == [e.edit for e in found[:2]]


def test_only_what_a_language_can_do_is_shown_and_this_machine_first(tmp_path: Path) -> None:
    """A C++ program learns nothing from Triton's block sizes; CUDA learns from Triton; home goes before abroad."""
    with Knowledge(tmp_path / "k.sqlite") as known:
        for machine, language, edit in (("A", "cpp", "here"), ("B", "cpp", "there"), ("A", "triton", "blocks")):
            known.add(Effect(machine=f"{machine}, torch 2", features=("op:exp",), diagnosis="", edit=edit,
                             language=language, ratios=(1.5,), failures=0))  # fmt: skip
        found = {name: [effect.edit for effect in known.retrieve(("op:exp",), language=name, machine="B")]
                 for name in ("cpp", "cuda", "torch")}  # fmt: skip
    assert {"cpp": ["there", "here"], "cuda": ["blocks"], "torch": []} == found


def test_a_large_gain_of_a_distant_program_is_no_hint_where_there_are_near_ones(tmp_path: Path) -> None:
    """A norm is told what helped norms, though a product of matrices gained ninety times in another way."""
    rows = ("op:mean", "op:rsqrt", "op:mul", "rank:2")
    with Knowledge(tmp_path / "k.sqlite") as known:
        known.add(made(features=rows, edit="row in cache once", ratios=(1.4,)))
        known.add(made(features=("op:diag", "op:matmul", "op:mul"), edit="scale the rows instead", ratios=(90.0,)))
        found = [effect.edit for effect in known.retrieve([*rows, "op:silu"], most=4)]
    assert ["row in cache once"] == found


def test_gains_are_shown_once_and_headings_not_at_all(tmp_path: Path) -> None:
    """Of many edits that fit alike, those that helped come along; a number without words is of no use."""
    edits = {f"harm {number}": 0.5 + number / 100 for number in range(6)} | {"rows at once": 3.0, "Usage:": 9.0}
    with Knowledge(tmp_path / "k.sqlite") as known:
        for machine in ("A", "B"):
            for edit, ratio in edits.items():
                known.add(Effect(machine=machine, features=("op:exp",), diagnosis="", edit=edit, language="cpp",
                                 ratios=(ratio,), failures=0))  # fmt: skip
        shown = [effect.edit for effect in known.retrieve(("op:exp",), language="cpp", most=4)]
    assert "rows at once" in shown and "Usage:" not in shown and 4 == len(set(shown))


def test_the_interval_is_that_of_the_geometric_mean() -> None:
    """Ratios 2 and 1/2 have mean 1, and the interval spans it."""
    mean, low, high = made(ratios=(2.0, 0.5, 2.0, 0.5)).interval()
    assert pytest.approx(1.0) == mean
    assert low < 1.0 < high


def test_export_and_import_round_trip_and_import_is_idempotent(tmp_path: Path) -> None:
    """JSON Lines out, in, and in again: the same store."""
    path = tmp_path / "k.jsonl"
    with Knowledge(tmp_path / "a.sqlite") as one, Knowledge(tmp_path / "b.sqlite") as two:
        one.add(BASE)
        one.add(made(edit="other"))
        assert (2, 2, 2) == (one.export(path), two.load(path), two.load(path))
        assert list(one) == list(two)


def test_bad_files_are_named(tmp_path: Path) -> None:
    """A line that is no effect and a store that is no database: each a clear error, nothing kept."""
    (tmp_path / "bad.jsonl").write_text('{"edit": "x"}\n')
    with Knowledge(tmp_path / "k.sqlite") as store:
        with pytest.raises(KernelwrightError, match="line 1"):
            store.load(tmp_path / "bad.jsonl")
        assert 0 == len(store)
    (tmp_path / "no.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(LedgerCorrupt):
        Knowledge(tmp_path / "no.sqlite")


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told to move a good store away."""

    class Full:
        def executescript(self, text: str) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: Full())
    with pytest.raises(RunFolderUnwritable, match="free space"):
        Knowledge(tmp_path / "k.sqlite")


def test_features_say_operators_and_size_classes() -> None:
    """Shapes count by rank and power of ten, not by their exact sizes."""
    facts = [("x", (1024, 4096), "float32")]
    assert ("dtype:float32", "op:mean", "rank:2", "size:1e7") == task_features(facts, ["mean"])
