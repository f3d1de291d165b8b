# SPDX-License-Identifier: Apache-2.0
"""A run as HTML, Markdown and JSON: it shows what the ledger and the proof say, and computes nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kernelwright.errors import RunFolderUnwritable
from kernelwright.report.gather import gather
from kernelwright.report.render import html, markdown

__all__ = ["gather", "html", "markdown", "write"]


def write(run_dir: Path) -> Path:
    """Write report.html, report.md and report.json into the run folder; returns the path of the first.

    Raises NoSuchRun where there is no run.json, LedgerCorrupt for a damaged ledger, RunFolderUnwritable.
    """
    data = gather(run_dir)
    texts = {
        "report.json": json.dumps(data, indent=1) + "\n",
        "report.md": markdown(data),
        "report.html": html(data),
    }
    try:
        for name, text in texts.items():
            unfinished = run_dir / f".{name}.unfinished"
            unfinished.write_text(text, encoding="utf-8", errors="replace")
            os.replace(unfinished, run_dir / name)
    except OSError as error:
        raise RunFolderUnwritable(
            f"The report cannot be written to {run_dir}.",
            got=str(error),
            expected="a folder on a disk with free space",
            what_next="free space, then: kernelwright report " + str(run_dir),
        ) from error
    return run_dir / "report.html"
