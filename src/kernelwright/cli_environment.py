# SPDX-License-Identifier: Apache-2.0
"""The verb ``environment``: a task that a policy of one's own is trained on, over lines of JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

import kernelwright
from kernelwright import cli_models, settings
from kernelwright.errors import BadCommand

LEVELS = ("precise", "coarse")


def register(
    app: typer.Typer,
    guarded: cli_models.Guarded,
    show: cli_models.Show,
    teller: Callable[[bool], Callable[[str], None]],
) -> None:
    """Add the verb to ``app``; ``guarded`` turns errors into exit codes, ``teller`` makes what says, on standard error,
    what is waited for. What goes to standard output is JSON in any case."""

    @app.command()
    @guarded
    def environment(
        file: Annotated[str, typer.Argument(help="A task file or folder.")],
        device: Annotated[str | None, typer.Option(help="cpu or cuda:N.")] = None,
        turns: Annotated[int, typer.Option(help="Replies of an episode.")] = 4,
        level: Annotated[str, typer.Option(help="precise, or coarse: quicker, against eager alone.")] = "precise",
        language: cli_models.Language = None,
        as_json: cli_models.AsJson = False,
    ) -> None:
        """Train a policy: observations go out and replies come in, a line of JSON each; the judge pays the reward.

        In: {"action": "the reply"}, {"reset": SEED or null}. Out: first {"observation": [messages], "info": {}}, after
        an action also "reward", "terminated" and "truncated", or {"error": {}} where a line cannot be used.
        """
        if level not in LEVELS:
            raise BadCommand("There is no such level.", got=level, expected=" or ".join(LEVELS))
        with kernelwright.Services(settings.device(device or settings.read().device)) as services:
            made = kernelwright.environment(
                file, services, turns=turns, level=level, language=language or "", say=teller(as_json)
            )
            try:
                made.converse(sys.stdin.buffer, typer.echo)
            except BrokenPipeError:
                # Whoever listened has gone; the interpreter must not try to write to it again at its end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
