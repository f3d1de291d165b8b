# SPDX-License-Identifier: Apache-2.0
"""The corpus of cheats and honest programs through the judge, again and again, in as many runs as it takes.

    python benchmarks/corpus.py --out FILE [--repeats 20] [--seconds 200] [--honest | --cheats] [--level coarse ...]
                                [--part K/N] [--join FILE ...]

Each run judges what has the fewest verdicts in FILE until its seconds are spent, and adds to FILE: one row per entry,
level and commit, with how often it was judged, how often rightly, and the words of every wrong verdict. Cheats are
judged at the level it takes, honest programs at every level asked for. Calling it again continues; nothing is left
out, and a wrong verdict stays in the file. ``--part 2/8`` takes every eighth entry, for eight runs side by side, each
with a FILE and a TMPDIR of its own; ``--join`` adds the rows of such files to FILE, and judges nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "cheats"), str(Path(__file__).parent)]

import provenance  # noqa: E402
import run_corpus  # noqa: E402
from corpus import Program  # noqa: E402

from kernelwright.workers.local import LocalWorker  # noqa: E402

LEVELS = ("coarse", "precise")
WORDS = 300
Key = tuple[str, str, str]
"""Task, name, level."""


def entries(asked: argparse.Namespace) -> list[tuple[Program, str]]:
    """What is to be judged and at which level."""
    found = []
    for program in run_corpus.by_task(p for p in run_corpus.ALL if p.device == asked.device):
        if program.honest and not asked.cheats:
            found += [(program, level) for level in asked.level or LEVELS]
        elif not program.honest and not asked.honest:
            found.append((program, program.level))
    return found


def read(path: Path) -> dict:
    """The rows so far, by commit."""
    return json.loads(path.read_text()) if path.exists() else {"rows": []}


def count(rows: list[dict], commit: str) -> dict[Key, dict]:
    """The rows of this commit by what they are about."""
    return {(row["task"], row["name"], row["level"]): row for row in rows if row["commit"] == commit}


def note(rows: list[dict], known: dict[Key, dict], verdict: run_corpus.Verdict, level: str, commit: str) -> None:
    """Add one verdict."""
    program = verdict.program
    key = program.task, program.name, level
    if key not in known:
        known[key] = {
            "task": program.task, "name": program.name, "level": level, "honest": program.honest, "commit": commit,
            "classes": list(program.classes), "verdicts": 0, "right": 0, "seconds": 0.0, "wrong": [],
        }  # fmt: skip
        rows.append(known[key])
    row = known[key]
    row["verdicts"] += 1
    row["right"] += verdict.right
    row["seconds"] = round(row["seconds"] + verdict.seconds, 2)
    if not verdict.right:
        row["wrong"].append(verdict.words[:WORDS])


def summary(rows: list[dict]) -> dict:
    """Counts over all commits in the file."""
    honest, cheats = ([row for row in rows if row["honest"] is kind] for kind in (True, False))
    return {
        "honest programs": len({(row["task"], row["name"]) for row in honest}),
        "honest verdicts": sum(row["verdicts"] for row in honest),
        "honest refused": sum(row["verdicts"] - row["right"] for row in honest),
        "cheats": len({(row["task"], row["name"]) for row in cheats}),
        "cheat verdicts": sum(row["verdicts"] for row in cheats),
        "cheats misjudged": sum(row["verdicts"] - row["right"] for row in cheats),
        "fewest honest verdicts per entry and level": min((row["verdicts"] for row in honest), default=0),
    }


def text(rows: list[dict]) -> str:
    """A file of these rows, each on a line."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f'{{"summary": {json.dumps(summary(rows))}, "rows": [\n{lines}\n]}}\n'


def joined(rows: list[dict], parts: list[Path]) -> None:
    """Add the rows of other files: verdicts on the same entry, level and commit are one row."""
    known = {(row["commit"], row["task"], row["name"], row["level"]): row for row in rows}
    for row in (row for part in parts for row in read(part)["rows"]):
        key = row["commit"], row["task"], row["name"], row["level"]
        if key not in known:
            known[key] = dict(row)
            rows.append(known[key])
            continue
        for name in ("verdicts", "right", "wrong"):
            known[key][name] += row[name]
        known[key]["seconds"] = round(known[key]["seconds"] + row["seconds"], 2)


def part_of(text: str) -> tuple[int, int]:
    """``K/N`` as (K - 1, N)."""
    part, whole = map(int, text.split("/"))
    if not 1 <= part <= whole:
        raise argparse.ArgumentTypeError(f"{text}: a part like 2/8 is meant")
    return part - 1, whole


def main() -> int:
    """Judge until the time is spent; the exit code says whether a verdict of this run was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--cheats", action="store_true")
    parser.add_argument("--level", action="append", choices=LEVELS)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--part", type=part_of, default=(0, 1), metavar="K/N")
    parser.add_argument("--join", type=Path, nargs="+", default=[])
    asked = parser.parse_args()
    body = read(asked.out)
    rows, commit = body["rows"], provenance.commit()
    if asked.join:
        joined(rows, asked.join)
        asked.out.write_text(text(rows))
        asked.seconds = 0.0
    known = count(rows, commit)
    began, wrong = time.monotonic(), 0

    def judged(item: tuple[Program, str]) -> int:
        return known.get((item[0].task, item[0].name, item[1]), {"verdicts": 0})["verdicts"]

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with LocalWorker(asked.device, Path(folder, "state"), Path(folder, "cache")) as worker:
            first, step = asked.part
            mine = entries(asked)[first::step]
            while mine and time.monotonic() - began <= asked.seconds:
                item = min(mine, key=judged)
                if judged(item) >= asked.repeats:
                    break
                verdict = run_corpus.judge(worker, *item)
                wrong += not verdict.right
                note(rows, known, verdict, item[1], commit)
                if not verdict.right:
                    sys.stdout.write(f"WRONG {item[1]} {item[0].task}/{item[0].name}: {verdict.words[:WORDS]}\n")
                    sys.stdout.flush()
                asked.out.write_text(text(rows))
    sys.stdout.write(f"{json.dumps(summary(rows))}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
