# SPDX-License-Identifier: Apache-2.0
"""Prompts as they are on this device, and a scripted coder's programs through the whole engine: no model, no key.

    python benchmarks/prompts_on_device.py --device cuda:0 --out DIR

Two searches on ``tasks/normalisation/rmsnorm``: one asks for Triton (C++ on a CPU), one for CUDA C++. The coder is an
agent command, this file itself: a program that does not compile, a wrong one, a right one, the same again, one in
CUDA C++. Prints what each request showed of machine and compiled code and where each program ended; DIR keeps every
prompt in full. Under two minutes on an H200 once the device's facts are known (a first measurement adds up to one).
Needs torch, numpy, jinja2 and (on CUDA) triton and nvcc.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE.parent)]
TASK = HERE.parent.parent / "tasks" / "normalisation" / "rmsnorm"
SHOWN = re.compile(r"^(?:Counted:|Compiled code\.|Diagnosis|Limited by|Finding|Make this|This program was|Translate)")
RECIPES = {"triton": "best", "cuda": "forge", "cpp": "best"}


def answer(folder: Path, language: str) -> None:
    """Be the agent command: keep TASK.md, leave the next program or a piece of advice."""
    from scripted_coder import ADVICE, ANSWERS

    task = Path("TASK.md").read_text()
    if "one JSON object" in task.partition("## Where the answer goes")[0]:
        (folder / f"adviser-{time.time_ns()}.md").write_text(task)
        Path("ANSWER.md").write_text(ADVICE)
        return
    number = len(list(folder.glob("coder-*.md")))
    (folder / f"coder-{number}.md").write_text(task)
    programs = ANSWERS[language]
    Path("ANSWER.md").write_text(programs[number % len(programs)])


def searched(language: str, device: str, out: Path, services, seconds: float) -> None:
    """One search, and what came of it."""
    from scripted_coder import ANSWERS

    import kernelwright

    asks = (out / language).resolve()
    asks.mkdir(parents=True)
    command = shlex.join([sys.executable, str(HERE), "--answer", str(asks), "--language", language])
    guide = kernelwright.Guide(
        agent=command, recipe=RECIPES[language], language=language, parallel=1, max_candidates=len(ANSWERS[language]),
        agent_seconds=20.0, max_minutes=1.0,
    )  # fmt: skip
    result = kernelwright.optimize(
        TASK, device=device, budget=seconds, out=out / f"run-{language}", proposers=["none"], guide=guide,
        services=services, listen=lambda event: print(f"  {event.seconds:6.1f}  {event.text[:300]}", flush=True),
    )  # fmt: skip
    print(f"result: {result.status}: {result.message}")
    print(f"models: {json.dumps(result.models)}")
    for row in (out / f"run-{language}" / "guided.jsonl").read_text().splitlines():
        print("ask", row)
    for path in sorted(asks.iterdir()):
        text = path.read_text()
        kept = [line[:400] for line in text.splitlines() if SHOWN.match(line)]
        print(f"prompt {path.name}: {len(text)} characters", *kept, sep="\n    ")
    machine = (asks / "coder-0.md").read_text().partition("The machine, as measured:")[2].split("\n\n")[0]
    print("machine as shown:", *machine.splitlines(), sep="\n  ")


def main() -> None:
    """The two searches, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, default=Path("prompts-on-device"), help="an empty or new folder")
    parser.add_argument("--seconds", type=float, default=45.0, help="budget of the first search")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--language", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.answer is not None:
        answer(chosen.answer, chosen.language)
        return
    from kernelwright import Services

    began = time.monotonic()
    languages = ("cpp",) if chosen.device == "cpu" else ("triton", "cuda")
    with Services(chosen.device) as services:
        for language, seconds in zip(languages, (chosen.seconds, 20.0), strict=False):
            print(f"== {language}, recipe {RECIPES[language]}", flush=True)
            searched(language, chosen.device, chosen.out, services, seconds)
            print(f"-- {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
