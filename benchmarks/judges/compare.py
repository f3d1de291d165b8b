# SPDX-License-Identifier: Apache-2.0
"""The same corpus through this judge and through other evaluators: what each accepts, refuses, and takes.

    python benchmarks/judges/compare.py --peer KernelBench=PATH [--peer NAME=PATH ...] [--anew NAME ...] --out FILE

Programs of one source whose answer is one tensor take part: what the others can be asked at all. Every verdict of
a peer runs in a process of its own, forked from one that has the peer loaded, and counts as a refusal when it dies.
With --anew a peer is also asked as KernelBench's own script for a folder of programs asks it
(``scripts/eval_from_generations.py`` spawns a pool for each batch): in a new interpreter for every program.
Programs marked hostile are left out: no peer confines them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "cheats"), str(Path(__file__).parent), str(ROOT / "benchmarks")]

import provenance  # noqa: E402
import run_corpus  # noqa: E402
from adapters import ADAPTERS, CannotRun  # noqa: E402
from cheat_tasks import TASKS  # noqa: E402
from corpus import Program  # noqa: E402

from kernelwright.workers.local import LocalWorker  # noqa: E402

PATIENCE = 20
SEVERAL = {"several", "in_place", "gradient", "dropout", "degenerate", "unread", "special"}
"""Tasks that say something KernelBench's form has no words for: more outputs, aliasing, gradients, randomness."""


def programs() -> list[Program]:
    """What every evaluator is asked about."""
    return [
        p
        for p in run_corpus.by_task(run_corpus.ALL)
        if p.language == "torch"
        and len(p.sources) == 1
        and p.device == "cpu"
        and p.task not in SEVERAL
        and not p.slow
        and not p.hostile
        and "kernelwright.judge" not in p.sources[0][1]  # aimed at this judge: nothing there for the others
    ]


def ours(asked: list[Program]) -> dict:
    """This judge on the same programs, at the level each needs, one at a time."""
    rows, seen, first, later = [], set(), [], []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with LocalWorker("cpu", Path(folder, "state"), Path(folder, "cache")) as worker:
            for verdict in run_corpus.verdicts(worker, asked):
                accepted = verdict.right if verdict.program.honest else not verdict.right
                rows.append((verdict.program, accepted, verdict.seconds))
                (later if verdict.program.task in seen else first).append(verdict.seconds)
                seen.add(verdict.program.task)
    spans = {
        "median seconds of a task's first verdict": round(statistics.median(first), 3),
        "median seconds of its later ones": round(statistics.median(later), 3) if later else None,
        "verdicts of a later kind": len(later),
    }
    return table(rows, []) | spans


def theirs(name: str, place: Path, asked: list[Program], repeats: int) -> dict:
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
    return table(rows, said[0]["patched"])


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
        accepted = _in_a_fork(lambda program=program: judge(TASKS[program.task].reference, program.sources[0][1]))
        out.write(json.dumps([accepted, time.monotonic() - began]) + "\n")
    out.close()


def _in_a_fork(question) -> bool:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        for other in range(3, 256):
            if other != send:
                with contextlib.suppress(OSError):
                    os.close(other)
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # these programs are not confined: let them write no file
        signal.alarm(PATIENCE)
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
        said |= {"reference": TASKS[program.task].reference, "candidate": program.sources[0][1]}
        began = time.monotonic()
        try:
            found = subprocess.run(
                [sys.executable, "-c", script],
                input=json.dumps(said).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            found = 1
        rows.append((program, found == ACCEPTED, time.monotonic() - began))
    return table(rows, ["a new interpreter for every program"])


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
    chosen = programs()[:: asked.every]
    result = {
        "commit": provenance.commit(),
        "command": command(asked.every, paths, asked.anew),
        "programs": len(chosen),
        "device": "cpu",
        "load average before": os.getloadavg()[0],
        "judges": {},
    }
    for name in ADAPTERS:
        if name in paths:
            result["judges"][name] = theirs(name, Path(paths[name]), chosen, 1)
        else:
            result["judges"][name] = {"ran": False, "reason": "no path was named for it"}
        sys.stdout.write(f"{name}: {json.dumps(result['judges'][name])[:400]}\n")
        sys.stdout.flush()
    for name in asked.anew:
        label = f"{name}, a process for each verdict"
        result["judges"][label] = anew(name, Path(paths[name]).resolve(), chosen)
        sys.stdout.write(f"{label}: {json.dumps(result['judges'][label])[:400]}\n")
        sys.stdout.flush()
    result["judges"]["kernelwright"] = ours(chosen)
    sys.stdout.write(f"kernelwright: {json.dumps(result['judges']['kernelwright'])[:400]}\n")
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
