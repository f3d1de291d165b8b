# SPDX-License-Identifier: Apache-2.0
"""The verb ``compare``: every recipe on every task at one budget, in two tables."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

import typer

import kernelwright
from kernelwright import cli_models, settings
from kernelwright.cli_judge import table
from kernelwright.errors import BadCommand

INTERRUPTED = 130


def register(app: typer.Typer, guarded: cli_models.Guarded, show: cli_models.Show) -> None:
    """Add the verb to ``app``; ``guarded`` turns errors into exit codes, ``show`` prints."""

    @app.command()
    @guarded
    def compare(
        files: Annotated[list[str], typer.Argument(help="Task files or folders.")],
        out: Annotated[str, typer.Option(help="Folder of the runs; the same command again finishes what is missing.")],
        llm: cli_models.Llm = None,
        base_url: cli_models.BaseUrl = None,
        agent: cli_models.Agent = None,
        agent_env: cli_models.AgentEnv = None,
        agent_seconds: cli_models.AgentSeconds = None,
        recipes: Annotated[str | None, typer.Option(help="Comma-separated (default: all of them).")] = None,
        seeds: Annotated[int, typer.Option(help="Runs of each recipe on each task.")] = 1,
        device: Annotated[str | None, typer.Option(help="cpu or cuda:N.")] = None,
        budget: Annotated[str | None, typer.Option(help="Wall time of a run (default: 1m a candidate).")] = None,
        proposers: Annotated[str, typer.Option(help="Of compiler,rewrites,templates, before the models.")] = "none",
        language: cli_models.Language = None,
        max_usd: cli_models.MaxUsd = None,
        max_tokens: cli_models.MaxTokens = None,
        max_requests: cli_models.MaxRequests = None,
        max_minutes: cli_models.MaxMinutes = None,
        max_candidates: cli_models.MaxCandidates = None,
        parallel: cli_models.Parallel = None,
        price: cli_models.Price = None,
        as_json: cli_models.AsJson = False,
    ) -> None:
        """Run every recipe on every task at one budget (each run gets all of it), and print how they compare."""
        asked = cli_models.guide({name: value for name, value in locals().items() if name not in ("recipes", "seeds")})
        if asked is None:
            raise BadCommand("There is no model.", expected="--llm PROVIDER:MODEL or --agent COMMAND")
        found = kernelwright.compare(
            files, asked, out=out, recipes=settings.names(recipes or ""), seeds=seeds, device=device, budget=budget,
            proposers=settings.names(proposers),
            say=(lambda text: None) if as_json else functools.partial(typer.echo, err=True),
        )  # fmt: skip
        show(found, as_json, lambda: _comparison(found))
        if found["interrupted"]:
            raise typer.Exit(INTERRUPTED)


def _comparison(found: Mapping[str, Any]) -> list[str]:
    """Two tables: a line a run, a line a recipe."""
    heads = ("task", "recipe", "seed", "result", "against", "asked", "verified", "requests", "tokens", "USD", "minutes",
             "ended by", "candidates ended at")  # fmt: skip
    rows = [
        (row["task"], row["recipe"], str(row["seed"]), _speed(row), _text(row["against"]), _text(row["candidates"]),
         _text(row["verified"]), _text(row["requests"]), _text(row["tokens"]), _usd(row["usd"], row["requests"]),
         _text(row["seconds"] and row["seconds"] / 60), _text(row["ended"]), _died(row["died"]))
        for row in found["rows"]
    ]  # fmt: skip
    sums = ("recipe", "runs", "faster", "mean (95 %)", "asked", "verified", "requests", "tokens", "USD", "minutes",
            "out of time", "candidates ended at")  # fmt: skip
    totals = [
        (one["recipe"], str(one["runs"]), str(one["faster"]), _mean(one), _text(one["candidates"]),
         _text(one["verified"]), _text(one["requests"]), _text(one["tokens"]), _usd(one["usd"], one["requests"]),
         _text(one["seconds"] and one["seconds"] / 60), str(one["short"]), _died(one["died"]))
        for one in found["recipes"]
    ]  # fmt: skip
    note = ("mean: geometric, of proved speedups over the best baseline, 1 where nothing was proved faster; its "
            "interval: over runs drawn again, from three runs on")  # fmt: skip
    if len({one["runs"] for one in found["recipes"] if one["runs"]}) > 1:
        note += ". Recipes with different numbers of runs cannot be compared yet"
    return [*table(heads, rows), "", *table(sums, totals), "", note]


def _speed(row: Mapping[str, Any]) -> str:
    if row["speedup"] is None:
        return str(row["status"])
    return f"{row['speedup']:.2f}x ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"


def _mean(one: Mapping[str, Any]) -> str:
    if one["mean"] is None:
        return "-"
    return f"{one['mean']:.2f}x" + (f" ({one['mean_low']:.2f} to {one['mean_high']:.2f})" if one["mean_low"] else "")


def _usd(usd: float | None, requests: int | None) -> str:
    return f"{usd:.4f}" if usd is not None else "unknown" if requests else "-"


def _text(value: float | str | None) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _died(died: Mapping[str, int]) -> str:
    return ", ".join(f"{place} {count}" for place, count in died.items())
