# SPDX-License-Identifier: Apache-2.0
"""The same corpus through this judge and through other evaluators: what each accepts, refuses, and takes.

    python benchmarks/judges/compare.py --peer KernelBench=PATH [--peer NAME=PATH ...] [--anew NAME ...] --out FILE

Programs whose answer is one tensor take part, in torch and in C++: what the others can be asked at all. Those in C++
are put to KernelBench in its form (``inline.py``), each built in a folder of its own that was empty; other peers are
not asked about them. Results come for each language and together. Every verdict of a peer runs in a process of its own,
forked from one that has the peer loaded, and counts as a refusal when it dies.
With --anew a peer is also asked as KernelBench's own script for a folder of programs asks it
(``scripts/eval_from_generations.py`` spawns a pool for each batch): in a new interpreter for every program.
Programs marked hostile are left out: no peer confines them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "cheats"), str(Path(__file__).parent), str(ROOT / "benchmarks")]

import inline  # noqa: E402
import provenance  # noqa: E402
import run_corpus  # noqa: E402
from adapters import ADAPTERS, CannotRun  # noqa: E402
from cheat_tasks import TASKS  # noqa: E402
from corpus import Program  # noqa: E402

from kernelwright.workers.local import LocalWorker  # noqa: E402

PATIENCE, BUILDING = 20, 600
"""Seconds for a verdict, and for one that begins with a build."""
LANGUAGES = ("torch", "cpp")
IN_BOTH = {"KernelBench"}
"""Peers whose form has room for a program in C++."""
SEVERAL = {"several", "in_place", "gradient", "dropout", "degenerate", "unread", "special"}
"""Tasks that say something KernelBench's form has no words for: more outputs, aliasing, gradients, randomness."""


def programs(language: str) -> list[Program]:
    """What evaluators are asked about."""
    return [
        p
        for p in run_corpus.by_task(run_corpus.ALL)
        if p.language == language
        and (len(p.sources) == 1 or language == "cpp")
        and p.device == "cpu"
        and p.task not in SEVERAL
        and not p.slow
        and not p.hostile
        and "kernelwright.judge" not in p.sources[0][1]  # aimed at this judge: nothing there for the others
        and "/etc/" not in p.sources[0][1]
    ]


def form(program: Program) -> str:
    """A program as one file with a ``ModelNew``."""
    return inline.wrapped(program) if program.language == "cpp" else program.sources[0][1]


def patience(program: Program) -> int:
    """Seconds that a peer may take over it."""
    return BUILDING if program.language == "cpp" else PATIENCE


def ours(asked: list[Program]) -> dict:
    """This judge on the same programs, at the level each needs, one at a time."""
    rows, seen, first, later = [], set(), [], []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with LocalWorker("cpu", Path(folder, "state"), Path(folder, "cache")) as worker:
            found = (run_corpus.verdicts(worker, [p for p in asked if p.language == name]) for name in LANGUAGES)
            for verdict in itertools.chain.from_iterable(found):
                accepted = verdict.right if verdict.program.honest else not verdict.right
                rows.append((verdict.program, accepted, verdict.seconds))
                (later if verdict.program.task in seen else first).append(verdict.seconds)
                seen.add(verdict.program.task)
    spans = {
        "median seconds of a task's first verdict": round(statistics.median(first), 3),
        "median seconds of its later ones": round(statistics.median(later), 3) if later else None,
        "verdicts of a later kind": len(later),
    }
    return tables(rows, []) | spans


def theirs(name: str, place: Path, asked: list[Program]) -> dict:
    """A peer on the same programs."""
    receive, send = os.pipe()
    loader = os.fork()
    if loader == 0:
        os.close(receive)
        try:
            _serve(name, place, asked, send)
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive) as lines:
        said = [json.loads(line) for line in lines]
    os.waitpid(loader, 0)
    if not said or "cannot" in said[0]:
        return {"ran": False, "reason": said[0]["cannot"] if said else "it died while it was loaded"}
    rows = [(program, *row) for program, row in zip(asked, said[1:], strict=False)]
    return tables(rows, said[0]["patched"])


def _serve(name: str, place: Path, asked: list[Program], send: int) -> None:
    """Load the peer once; answer every program in a fork."""
    out = os.fdopen(send, "w")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        judge, patched = ADAPTERS[name](place)
    except (CannotRun, ImportError, AttributeError) as error:
        out.write(json.dumps({"cannot": f"{type(error).__name__}: {error}"}) + "\n")
        out.close()
        return
    out.write(json.dumps({"patched": patched}) + "\n")
    for program in asked:
        began = time.monotonic()
        out.flush()
        text = form(program)
        accepted = _in_a_fork(lambda program=program, text=text: judge(TASKS[program.task].reference, text), program)
        out.write(json.dumps([accepted, time.monotonic() - began]) + "\n")
    out.close()


@contextlib.contextmanager
def _room(program: Program) -> Iterator[Path | None]:
    """An empty folder for what is built, where something is."""
    if program.language != "cpp":
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _in_a_fork(question: Callable[[], bool], program: Program) -> bool:
    with _room(program) as folder:
        return _forked(question, patience(program), folder)


def _forked(question: Callable[[], bool], seconds: int, folder: Path | None) -> bool:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        for other in range(3, 256):
            if other != send:
                with contextlib.suppress(OSError):
                    os.close(other)
        os.setpgid(0, 0)
        if folder is None:  # these programs are not confined: let them write no file
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
        signal.alarm(seconds)
        answer = b"n"
        try:
            answer = b"y" if question() else b"n"
        except BaseException:  # noqa: BLE001 - an evaluator that raises has not accepted
            answer = b"n"
        os.write(send, answer)
        os._exit(0)
    os.close(send)
    answer = os.read(receive, 1)
    os.close(receive)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
    return answer == b"y"


_ALONE = """
import json, os, sys
from pathlib import Path
said = json.load(sys.stdin)
sys.path.insert(0, said["folder"])
from adapters import ADAPTERS
judge, _ = ADAPTERS[said["name"]](Path(said["place"]))
os._exit(ACCEPTED if judge(said["reference"], said["candidate"]) else 1)
"""
ACCEPTED = 42


def anew(name: str, place: Path, asked: list[Program]) -> dict:
    """A peer on the same programs, loaded for each of them."""
    rows = []
    script = _ALONE.replace("ACCEPTED", str(ACCEPTED))
    for program in asked:
        said = {"folder": str(Path(__file__).parent), "name": name, "place": str(place)}
        said |= {"reference": TASKS[program.task].reference, "candidate": form(program)}
        began = time.monotonic()
        with _room(program) as folder:
            try:
                found = subprocess.run(
                    [sys.executable, "-c", script],
                    input=json.dumps(said).encode(),
                    env=os.environ | {"TORCH_EXTENSIONS_DIR": str(folder)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=patience(program),
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                found = 1
        rows.append((program, found == ACCEPTED, time.monotonic() - began))
    return tables(rows, ["a new interpreter for every program"])


def tables(rows: list[tuple[Program, bool, float]], patched: list[str]) -> dict:
    """All programs together, and those of each language where there are several."""
    apart = {name: [row for row in rows if row[0].language == name] for name in LANGUAGES}
    found = {name: table(some, []) for name, some in apart.items() if 0 < len(some) < len(rows)}
    return table(rows, patched) | {"by language": found}


def table(rows: list[tuple[Program, bool, float]], patched: list[str]) -> dict:
    """Counts, names and seconds."""
    cheats = [(p, accepted) for p, accepted, _ in rows if not p.honest and p.gains is None]
    timed = [(p, accepted) for p, accepted, _ in rows if p.gains is not None]
    honest = [(p, accepted) for p, accepted, _ in rows if p.honest]
    seconds = [s for _, _, s in rows]
    return {
        "ran": True,
        "verdicts": len(rows),
        "cheats": len(cheats),
        "cheats accepted": sum(accepted for _, accepted in cheats),
        "cheats of time": len(timed),
        "cheats of time accepted": sum(accepted for _, accepted in timed),
        "honest": len(honest),
        "honest refused": sum(not accepted for _, accepted in honest),
        "seconds per verdict": round(sum(seconds) / max(1, len(seconds)), 3),
        "median seconds": round(statistics.median(seconds), 3) if seconds else None,
        "verdicts per minute": round(60 * len(seconds) / max(1e-9, sum(seconds)), 1),
        "patched": patched,
        "accepted": sorted(f"{p.task}/{p.name} {list(p.classes)}" for p, accepted in cheats + timed if accepted),
        "refused": sorted(p.name for p, accepted in honest if not accepted),
    }


def command(every: int, paths: dict[str, str], again: list[str]) -> str:
    """What was run, without the folders of this machine."""
    peers = "".join(f" --peer {name}=PATH" for name in ADAPTERS if name in paths)
    peers += "".join(f" --anew {name}" for name in again)
    return f"python benchmarks/judges/compare.py --every {every}{peers} --out FILE"


def main() -> int:
    """Write the table as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH", help=", ".join(ADAPTERS))
    parser.add_argument(
        "--anew", action="append", default=[], metavar="NAME", help="also with a process for each verdict"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every Nth program only")
    asked = parser.parse_args()
    paths = dict(item.split("=", 1) for item in asked.peer)
    chosen = [p for language in LANGUAGES for p in programs(language)[:: asked.every]]
    plain = [p for p in chosen if p.language == "torch"]
    result = {
        "commit": provenance.commit(),
        "command": command(asked.every, paths, asked.anew),
        "programs": {language: sum(p.language == language for p in chosen) for language in LANGUAGES},
        "device": "cpu",
        "load average before": os.getloadavg()[0],
        "judges": {},
    }
    for name in ADAPTERS:
        if name in paths:
            result["judges"][name] = theirs(name, Path(paths[name]), chosen if name in IN_BOTH else plain)
        else:
            result["judges"][name] = {"ran": False, "reason": "no path was named for it"}
        sys.stdout.write(f"{name}: {json.dumps(result['judges'][name])[:400]}\n")
        sys.stdout.flush()
    for name in asked.anew:
        label = f"{name}, a process for each verdict"
        result["judges"][label] = anew(name, Path(paths[name]).resolve(), chosen if name in IN_BOTH else plain)
        sys.stdout.write(f"{label}: {json.dumps(result['judges'][label])[:400]}\n")
        sys.stdout.flush()
    result["judges"]["kernelwright"] = ours(chosen)
    sys.stdout.write(f"kernelwright: {json.dumps(result['judges']['kernelwright'])[:400]}\n")
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
