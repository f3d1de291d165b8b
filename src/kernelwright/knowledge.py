# SPDX-License-Identifier: Apache-2.0
"""Measured effects of edits across tasks and machines: written from ledgers, never from anyone's opinion.

An effect is keyed by (machine, task features, diagnosis, edit) and holds every measured ratio of times, failures
included. Retrieval goes by structure first (shared operators and shape classes, as in graph-similarity retrieval),
full text second, and compression distance (normalised compression distance, Cilibrasi and Vitanyi 2005) last.
"""

from __future__ import annotations

import json
import math
import random
import re
import sqlite3
import statistics
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernelwright import wire
from kernelwright.errors import BadCommand, LedgerCorrupt, RunFolderUnwritable
from kernelwright.ledger import Ledger
from kernelwright.trial import Timed, Trial

_SCHEMA = """
create table if not exists effects (
  key text primary key, machine text not null, features text not null, diagnosis text not null, edit text not null,
  language text not null, ratios text not null, failures integer not null);
create table if not exists sightings (mark text primary key) without rowid;
create virtual table if not exists words using fts5(key unindexed, text, tokenize="unicode61 tokenchars '_'");
"""
LONGEST_EDIT = 200
KIN = {"triton": frozenset({"triton", "cuda"}), "cuda": frozenset({"triton", "cuda"})}
"""Languages whose edits carry over: they are for one kind of device."""
IDLE = frozenset(f"op:{name}" for name in ("parameter", "rand", "randn", "randint", "zeros", "ones", "empty", "tensor",
                                           "full", "register_buffer", "size", "to", "float"))  # fmt: skip
"""Calls that make weights or ask for sizes: two programs that have these in common have nothing in common."""
POOL = 4
"""So many times as many effects as are wanted are looked through for gains."""
KINDRED = 0.5
"""Share of the closest program's likeness that another must reach: what is far off is no hint where there is better."""
CLOSEST = 200
"""Effects ranked in full after the cheap structural cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One kind of edit and all that was measured of it. A ratio is time before over time after: above 1 is faster."""

    machine: str
    features: tuple[str, ...]
    """``op:mm``, ``dtype:float32``, ``rank:2``, ``size:1e7`` ... of the task, sorted."""
    diagnosis: str
    """The limiter when the edit was made, or empty."""
    edit: str
    language: str
    ratios: tuple[float, ...]
    failures: int

    @property
    def key(self) -> str:
        """Identity: what was edited, where, under which diagnosis."""
        return wire.digest(self.machine, self.features, self.diagnosis, self.edit, self.language)

    @property
    def mean(self) -> float:
        """Geometric mean of the ratios; 0 where it never worked."""
        return math.exp(statistics.fmean(math.log(ratio) for ratio in self.ratios)) if self.ratios else 0.0

    def interval(self) -> tuple[float, float, float]:
        """(geometric mean, low, high) of the ratios; the 95 % interval is a bootstrap of the mean of logs."""
        logs = [math.log(ratio) for ratio in self.ratios]
        dice = random.Random(self.key)
        means = sorted(statistics.fmean(dice.choices(logs, k=len(logs))) for _ in range(400))
        return tuple(math.exp(value) for value in (statistics.fmean(logs), means[9], means[389]))  # type: ignore[return-value]

    def line(self) -> str:
        """As a prompt shows it: words, then numbers."""
        where = f"[{self.machine}; {self.language}{'; ' + self.diagnosis if self.diagnosis else ''}]"
        failed = f"; failed {self.failures} time(s)" if self.failures else ""
        if not self.ratios:
            return f"{self.edit}: never worked{failed} {where}"
        mean, low, high = self.interval()
        range_of = f"95 % {low:.2f} to {high:.2f}, n={len(self.ratios)}" if len(self.ratios) > 1 else "measured once"
        return f"{self.edit}: {mean:.2f}x ({range_of}){failed} {where}"


class Knowledge:
    """One store in one SQLite file. One writing process at a time; any number of readers."""

    def __init__(self, path: Path) -> None:
        """Open or create. Raises ``LedgerCorrupt`` for a damaged file, ``RunFolderUnwritable`` for a full disk."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=10.0, isolation_level=None)
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            if any(word in str(error) for word in ("readonly", "full", "unable to open", "disk I/O")):
                raise RunFolderUnwritable(
                    "The knowledge store cannot be written", f"{path}: {error}", "a file on a disk with free space",
                    "free space, or set KERNELWRIGHT_HOME to another folder",
                ) from error  # fmt: skip
            raise LedgerCorrupt(
                "The knowledge store is damaged", f"{path}: {error}", "a store of this version",
                "move it away; kernelwright knowledge import rebuilds it from an export",
            ) from error  # fmt: skip

    def __enter__(self) -> Knowledge:
        return self

    def __exit__(self, *exc: object) -> None:
        self._db.close()

    def add(self, effect: Effect) -> None:
        """Merge an effect with what is known under the same key."""
        with self._transaction():
            self._merge(effect)

    def learn(self, ledger: Ledger, machine: str, features: Sequence[str], level: str = "coarse") -> int:
        """Read every trial of a ledger that has a judged parent; return how many effects were new.

        The same trial is never counted twice, however often its ledger is read."""
        trials: dict[str, Trial] = {}
        for row in ledger.rows():
            if row.level == level:
                trials[row.candidate] = ledger.trial(row.id)
        added = 0
        for digest, trial in trials.items():
            parent = trials.get(trial.candidate.parent)
            if parent is None or not isinstance(parent.outcome, Timed) or not describe_edit(trial, parent):
                continue
            mark = wire.digest(digest, parent.candidate.digest(), trial.machine, trial.started_at)
            if self._db.execute("insert or ignore into sightings values (?)", (mark,)).rowcount == 0:
                continue
            self.add(_effect(trial, parent, machine, features))
            added += 1
        return added

    def retrieve(
        self, features: Sequence[str], *, diagnosis: str = "", words: str = "", most: int = 5, language: str = "",
        machine: str = "",
    ) -> list[Effect]:  # fmt: skip
        """The effects most likely to bear on a task: by structure, then words, then compression distance; of those, the
        largest gains for half of the places, so that what helped is not lost among what did not.

        Of programs with no operation in common with the task nothing is said, unless ``words`` lead there.
        ``language``: only edits that a program in it can make. Those measured on ``machine`` go before others."""
        hits, kin = self._matches(words), KIN.get(language, frozenset({language}))
        ranked, own = [], set(features) - IDLE
        for effect in self:
            if language and effect.language not in kin or not _tells(effect.edit):
                continue
            theirs = set(effect.features) - IDLE
            strange = _operations(own) and _operations(theirs) and not _operations(own & theirs)
            if strange and effect.key not in hits:
                continue
            shared = _overlap(own, theirs)
            same = 0.25 if diagnosis and diagnosis == effect.diagnosis else 0.0
            same += 0.25 if machine and effect.machine.startswith(machine) else 0.0
            ranked.append((-(shared + same), hits.get(effect.key, 0.0), effect, shared))
        least = KINDRED * max((shared for *_, shared in ranked), default=0.0)
        ranked = [item for item in ranked if item[3] >= least or item[2].key in hits]
        ranked.sort(key=lambda item: (round(item[0], 2), item[1], item[2].key))
        close = ranked[:CLOSEST]
        query = " ".join((*features, diagnosis, words))
        text = {item[2].key: " ".join((*item[2].features, item[2].diagnosis, item[2].edit)) for item in close}
        close.sort(key=lambda item: (round(item[0], 2), round(item[1], 1), _distance(query, text[item[2].key])))
        return _chosen([item[2] for item in close[: POOL * most]], most)

    def copy_to(self, path: Path) -> None:
        """A copy of the whole store in a new file."""
        self._db.execute("vacuum into ?", (str(path),))

    def export(self, path: Path) -> int:
        """Write every effect as JSON Lines; return how many."""
        effects = list(self)
        path.write_text("".join(wire.dumps(effect) + "\n" for effect in effects), encoding="utf-8")
        return len(effects)

    def load(self, path: Path) -> int:
        """Merge effects from JSON Lines; return how many. A file already merged changes nothing.

        Raises ``BadCommand`` naming the line that is not an effect; nothing of that file is kept then."""
        body = path.read_text(encoding="utf-8")
        mark = wire.digest("import", body)
        effects = []
        for number, line in enumerate(body.splitlines(), 1):
            try:
                effects.append(wire.from_data(Effect, json.loads(line)))
            except (ValueError, TypeError) as error:
                raise BadCommand(
                    f"{path} is not an export of knowledge", f"line {number}: {error}", "one effect a line"
                ) from error
        with self._transaction():  # one for all: hundreds of effects ship with the package
            if self._db.execute("insert or ignore into sightings values (?)", (mark,)).rowcount:
                for effect in effects:
                    self._merge(effect)
        return len(effects)

    def __iter__(self) -> Iterator[Effect]:
        rows = self._db.execute("select * from effects order by key").fetchall()
        return (_row(row) for row in rows)

    def __len__(self) -> int:
        return int(self._db.execute("select count(*) from effects").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
            self._db.execute("commit")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("rollback")
            raise

    def _merge(self, effect: Effect) -> None:
        known = self._get(effect.key)
        ratios = (*(known.ratios if known else ()), *effect.ratios)
        failures = (known.failures if known else 0) + effect.failures
        self._db.execute(
            "insert or replace into effects values (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                effect.key, effect.machine, json.dumps(effect.features), effect.diagnosis, effect.edit,
                effect.language, json.dumps(ratios), failures,
            ),
        )  # fmt: skip
        if known is None:
            text = " ".join((effect.edit, effect.diagnosis, effect.language, *effect.features))
            self._db.execute("insert into words values (?, ?)", (effect.key, text))

    def _get(self, key: str) -> Effect | None:
        row = self._db.execute("select * from effects where key = ?", (key,)).fetchone()
        return None if row is None else _row(row)

    def _matches(self, words: str) -> dict[str, float]:
        terms = re.findall(r"\w{3,}", words)[:40]
        if not terms:
            return {}
        query = " OR ".join(f'"{term}"' for term in terms)
        rows = self._db.execute("select key, bm25(words) from words where words match ? limit 500", (query,))
        return {str(key): float(score) for key, score in rows}


def task_features(facts: Sequence[tuple[str, Sequence[int], str]], operators: Sequence[str]) -> tuple[str, ...]:
    """Features of a task from its inputs (name, shape, dtype) and the operators of its trace, sorted."""
    found = {f"op:{name}" for name in operators}
    for _, shape, dtype in facts:
        size = math.prod(shape)
        found |= {f"dtype:{dtype}", f"rank:{len(shape)}", f"size:1e{max(0, round(math.log10(max(size, 1))))}"}
    return tuple(sorted(found))


def _effect(trial: Trial, parent: Trial, machine: str, features: Sequence[str]) -> Effect:
    timed = trial.outcome if isinstance(trial.outcome, Timed) else None
    assert isinstance(parent.outcome, Timed)
    ratio = (parent.outcome.timing.median_us / timed.timing.median_us,) if timed else ()
    return Effect(
        machine=machine,
        features=tuple(sorted(features)),
        diagnosis=parent.outcome.limiter,
        edit=describe_edit(trial, parent),
        language=trial.candidate.language,
        ratios=ratio,
        failures=0 if timed else 1,
    )


def describe_edit(trial: Trial, parent: Trial) -> str:
    """What was changed: exactly, where only tunables did; else in the candidate's own one line.

    Empty where that line says nothing ("Usage:"): a number that belongs to no words helps nobody."""
    before, after = dict(parent.candidate.tunables), dict(trial.candidate.tunables)
    if before and before.keys() == after.keys() and before != after:
        moved = [f"{name} {before[name]} to {after[name]}" for name in sorted(before) if before[name] != after[name]]
        return ", ".join(moved)[:LONGEST_EDIT]
    note = trial.candidate.note.strip()
    return note[:LONGEST_EDIT] if _tells(note) else ""


def _tells(edit: str) -> bool:
    """Whether words say what was done: a heading does not."""
    return bool(edit) and not edit.endswith(":") and not edit.startswith("an edit by ")


def _chosen(ranked: Sequence[Effect], most: int) -> list[Effect]:
    """``most`` of them in their order: the largest gains, each edit once, and then the first others."""
    once: dict[str, Effect] = {}
    for effect in ranked:
        once.setdefault(effect.edit, effect)
    gains = sorted((effect for effect in once.values() if effect.mean > 1.0), key=lambda effect: -effect.mean)
    taken = gains[: (most + 1) // 2]
    taken += [effect for effect in once.values() if effect not in taken][: most - len(taken)]
    return [effect for effect in once.values() if effect in taken]


def _row(row: Sequence[object]) -> Effect:
    _, machine, features, diagnosis, edit, language, ratios, failures = row
    return Effect(
        machine=str(machine),
        features=tuple(json.loads(str(features))),
        diagnosis=str(diagnosis),
        edit=str(edit),
        language=str(language),
        ratios=tuple(float(ratio) for ratio in json.loads(str(ratios))),
        failures=int(str(failures)),
    )


def _operations(features: set[str]) -> set[str]:
    return {feature for feature in features if feature.startswith("op:")}


def _overlap(one: set[str], two: set[str]) -> float:
    union = one | two
    return len(one & two) / len(union) if union else 0.0


def _distance(one: str, two: str) -> float:
    """Normalised compression distance of two texts, about 0 (equal) to 1 (unrelated)."""
    alone = [len(zlib.compress(text.encode(), 9)) for text in (one, two)]
    together = len(zlib.compress(f"{one}\n{two}".encode(), 9))
    return (together - min(alone)) / max(alone)
