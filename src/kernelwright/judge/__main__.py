# SPDX-License-Identifier: Apache-2.0
"""``python -m kernelwright.judge``: one Task and one Candidate in, one Outcome out; or ``--serve`` for many.

A job is a JSON object, from the file named or from standard input. Any verdict exits 0; an error that is the
user's to mend exits with the code of its class. The verdict is the only thing on standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

from kernelwright.errors import BadCommand, KernelwrightError
from kernelwright.judge import pages
from kernelwright.judge.native import PASSES
from kernelwright.judge.server import Server, answer
from kernelwright.judge.session import Session


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kernelwright.judge", description=__doc__)
    parser.add_argument("file", nargs="?", default="-", help="a job as JSON, or - for standard input")
    parser.add_argument("--serve", action="store_true", help="answer one JSON job per line until the input ends")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N (default for jobs that name none)")
    parser.add_argument("--state", type=Path, default=None, help="folder of compiled baselines and logs")
    parser.add_argument("--cache", type=Path, default=None, help="folder of built candidates")
    options = parser.parse_args(argv)
    replies = _private_stdout()
    pages.keep_freed_pages()  # not inherited by the zygote: that is a new interpreter
    with contextlib.ExitStack() as places:
        state = (options.state or _scratch(places) / "state").resolve()
        cache = (options.cache or _scratch(places) / "cache").resolve()
        PASSES.prepare(cache)
        session = Session(options.device, state, cache)
        try:
            if options.serve:
                Server(session.jobs(), session.beside(), replies).serve(sys.stdin)
                return 0
            return _once(session, options.file, replies)
        finally:
            session.close()


def _scratch(places: contextlib.ExitStack) -> Path:
    """A folder that goes with this process; made only where it is used, as one that is killed leaves it behind."""
    return Path(places.enter_context(tempfile.TemporaryDirectory(prefix="kernelwright-judge-")))


def _once(session: Session, file: str, replies: TextIO) -> int:
    error: KernelwrightError | None
    try:
        job = _read(file)
        result, error = answer(session.jobs(), job, lambda event: None)
    except KernelwrightError as fault:
        result, error = None, fault
    replies.write(json.dumps(error.to_json() if error else result, indent=1) + "\n")
    replies.flush()
    return error.exit_code if error else 0


def _read(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        job = json.loads(text)
    except (OSError, ValueError) as fault:
        raise BadCommand("The job cannot be read", str(fault), "a JSON object", "see --help") from None
    if not isinstance(job, dict):
        raise BadCommand("The job is not an object", type(job).__name__, '{"job": "judge", "task": ...}')
    return {"job": "judge", **job}


def _private_stdout() -> TextIO:
    """Keep the real standard output for replies and point file descriptor 1 at the log.

    A reference that prints, or a library that writes to descriptor 1, can then not break a reply.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


if __name__ == "__main__":
    sys.exit(main())
