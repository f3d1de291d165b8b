# SPDX-License-Identifier: Apache-2.0
"""The report's data to HTML and Markdown through the templates beside this file; every value is escaped."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.report import charts

TEMPLATES = Path(__file__).parent / "templates"
STRICT_BITS = 1.0
"""The default of Contract.bits_lost; a looser contract is stated beside the speedup."""


def html(data: Mapping[str, Any]) -> str:
    """One self-contained page: no script, no link, no font from elsewhere."""
    return _render("report.html.j2", data, escape=True)


def markdown(data: Mapping[str, Any]) -> str:
    """The same facts for a terminal or a pull request."""
    return _render("report.md.j2", data, escape=False)


def headline(data: Mapping[str, Any]) -> dict[str, str]:
    """The verdict in one line, and the line below it with eager, precision and what was checked."""
    best = data["best"]
    if best is None:
        return {"verdict": data["message"] or "Nothing was proved.", "beside": ""}
    eager = next((b for b in best["baselines"] if b["name"] == "eager"), None)
    bits = "unknown" if best["bits_lost"] is None else f"{best['bits_lost']:.2f}"
    beside = [f"{bits} bits lost against eager, both measured against {best['oracle']}"]
    if data["asked"]["contract"]["bits_lost"] > STRICT_BITS:
        beside.append(f"the caller allowed {data['asked']['contract']['bits_lost']:g} bits")
    if eager is not None and best["best_baseline"] != "eager":
        beside.append(f"{eager['speedup']:.2f}x against eager")
    required = [case for case in best["cases"] if case["required"]]
    checks = "1 required check" if len(required) == 1 else f"{len(required)} required checks"
    beside.append(f"{checks} passed, {best['checked_calls']} calls compared in full")
    if data["won"]:
        verdict = f"{best['speedup']:.2f}x faster than {best['best_baseline']}, the best baseline"
    else:
        verdict = "Nothing honest beats the baseline"
        beside.insert(0, f"the best attempt runs at {best['speedup']:.2f}x of {best['best_baseline']}")
    interval = f"95 % interval {best['speedup_low']:.2f} to {best['speedup_high']:.2f}"
    return {"verdict": verdict, "beside": "; ".join([interval, *beside]) + "."}


def _render(name: str, data: Mapping[str, Any], *, escape: bool) -> str:
    # jinja2 costs 60 ms; only a report needs it, and the facade imports this room.
    import jinja2  # noqa: PLC0415

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"micros": charts.micros, "cell": _cell, "moment": _moment, "short": _short}
    environment.filters |= {"fact": _fact, "usd": _usd}
    best = data["best"]
    code = [*best["diff"], *(f["text"] for f in best["files"])] if best else []
    return environment.get_template(name).render(
        **data,
        head=headline(data),
        bars=charts.bars(best) if best else None,
        chart=charts.trajectory(data["tried"]),
        fence=charts.fences(code),
        width=charts.WIDTH,
        height=charts.HEIGHT,
        left=charts.LEFT,
        bottom=charts.HEIGHT - charts.BOTTOM,
        right=charts.WIDTH - charts.RIGHT,
    )


def _usd(value: float | None) -> str:
    """Dollars; a price that is not known says so and is never zero."""
    return "price unknown" if value is None else f"{value:.4f} USD"


def _cell(value: object) -> str:
    """Text for one cell of a Markdown table: one line, no markup of its own."""
    text = re.sub(r"\s+", " ", str(value)).strip()
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|!#])", r"\\\1", text)


def _short(digest: str) -> str:
    return digest[:10]


def _moment(seconds: float | None) -> str:
    if not seconds:
        return "unknown"
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _fact(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g}"
