# SPDX-License-Identifier: Apache-2.0
"""A coding-agent command as a model: a request becomes a folder with TASK.md, the files it leaves become the reply."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kernelwright import sandbox
from kernelwright.llm import Message, ModelFailure, Reply
from kernelwright.optimize.guide import split
from kernelwright.proposers.agent import Prompts

TASK, REFERENCE, ANSWER, MAIN = "TASK.md", "reference.py", "ANSWER.md", "kernel.py"
ENDINGS = {".py": "python", ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".hpp": "cpp"}
MOST_FILES = 32
MOST_BYTES = 1 << 20


class CommandModel:
    """Runs the command once for each request, in a fresh folder below ``root`` that is removed afterwards.

    It is the user's own program and runs unconfined, in a process group of its own, with PATH, HOME, LANG and the
    variables in ``names`` only. ``clean`` goes over what it printed before that is shown."""

    def __init__(
        self, command: str, root: Path, *, reference: str, names: Sequence[str] = (), seconds: float = 900.0,
        clean: Callable[[str], str] = str, check: str = "",
    ) -> None:  # fmt: skip
        """``check``: a command line that judges ``kernel.py`` in the folder; the request names it."""
        self.name = f"agent:{Path(split(command)[0]).name}"
        self._argv, self._root, self._reference = split(command), root, reference
        self._names, self._seconds, self._clean = tuple(names), seconds, clean
        self._check, self._prompts = check, Prompts()

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """What the command left. Raises ``ModelFailure`` when it never ended, failed, or left nothing."""
        self._root.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="agent-", dir=self._root))
        try:
            system = "\n".join(message.text for message in messages if message.role == "system")
            request = "\n".join(message.text for message in messages if message.role != "system")
            nouns = {"system": system, "request": request, "reference": self._reference, "check": self._check}
            text = self._prompts.render("agent_task", **nouns)
            (place / TASK).write_text(text, encoding="utf-8")
            (place / REFERENCE).write_text(self._reference, encoding="utf-8")
            finished = sandbox.command(self._argv, seconds=self._seconds, cwd=place, env=sandbox.chosen(self._names))
            if finished.killed:
                raise ModelFailure(f"the agent command was ended: {finished.killed}", temporary=False)
            return self._reply(place, finished)
        finally:
            if place.is_symlink():
                place.unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """Not known: the command pays its own bills."""
        return None

    def _reply(self, place: Path, finished: sandbox.Finished) -> Reply:
        said = self._clean(finished.stderr or finished.stdout)[-500:]
        if not place.is_dir() or place.is_symlink():
            raise ModelFailure(f"the agent command deleted its folder; it said: {said}", temporary=False)
        text = self._files(place) or _text(place / ANSWER) or (finished.stdout if finished.returncode == 0 else "")
        if not text.strip():
            raise ModelFailure(
                f"the agent command left neither {MAIN} nor {ANSWER} (status {finished.returncode}); it said: {said}",
                temporary=False,
            )
        # The command pays its own bills; --max-tokens is refused with it, so nothing rests on these counts.
        return Reply(text=text, model=self.name, input_tokens=0, output_tokens=0, usd=None, finish="stop")

    @staticmethod
    def _files(place: Path) -> str:
        """The program as a reply would hold it: one fenced block a file, kernel.py last."""
        main = place / MAIN
        if not _text(main):
            return ""
        with os.scandir(place) as entries:
            names = sorted(itertools.islice((entry.name for entry in entries if _wanted(entry.name)), MOST_FILES))
        blocks = []
        for path in [*(place / name for name in names), main]:
            body = _text(path)
            if not body:
                continue
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", body)), default=0))
            blocks.append(f"{fence}{ENDINGS[path.suffix]} {path.name}\n{body.rstrip()}\n{fence}")
        return "\n\n".join(blocks)


def _wanted(name: str) -> bool:
    return os.path.splitext(name)[1] in ENDINGS and name not in (MAIN, REFERENCE)


def _text(path: Path) -> str:
    """A regular file of at most MOST_BYTES in the folder itself; "" for links, pipes, devices and anything larger."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
            return ""
        return os.pread(file, MOST_BYTES, 0).decode("utf-8", errors="replace")
    except OSError:
        return ""
    finally:
        os.close(file)
