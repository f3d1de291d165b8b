# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a run while it goes on, and how one is ended from outside."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

import kernelwright

if TYPE_CHECKING:
    from rich.console import Console

Listen = Callable[["kernelwright.Event"], None]


@contextmanager
def display(*, quiet: bool) -> Iterator[Listen]:
    """What hears the events: nothing, plain lines, or a live line on a terminal."""
    if quiet:
        yield lambda event: None
    elif not sys.stdout.isatty():
        yield _plain_line
    else:
        from rich.console import Console  # noqa: PLC0415 - 0.1 s that only a terminal pays

        console = Console(highlight=False)
        with console.status("starting") as status:

            def listen(event: kernelwright.Event) -> None:
                status.update(f"[{event.seconds:5.1f} s] {escaped(event.text)}")
                if event.kind != "phase":
                    rich_line(console, event)

            yield listen


def _plain_line(event: kernelwright.Event) -> None:
    if event.kind != "done":  # the result itself is printed after it
        typer.echo(f"{event.seconds:7.1f}  {event.text}")


_COLOURS = {"best": "bold green", "note": "yellow", "admitted": "cyan", "structures": "cyan"}


def rich_line(console: Console, event: kernelwright.Event, task: str = "") -> None:
    """One event above the live line; ``task``: whose it is, where several go on."""
    if event.kind == "done":
        return
    colour = "red" if "stage" in event.data else _COLOURS.get(event.kind, "default")
    console.print(f"[{colour}]{event.seconds:7.1f}  {escaped(task + event.text)}[/]", soft_wrap=True)


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    return text.replace("[", "\\[")


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: cleanly, with everything found so far kept."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def times(speedup: float | None) -> str:
    """``1.23x``, or nothing."""
    return "" if speedup is None else f"{speedup:.2f}x"
