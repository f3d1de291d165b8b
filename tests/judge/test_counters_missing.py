# SPDX-License-Identifier: Apache-2.0
"""Nsight Compute taken away, or not allowed to count: a note in the profile, whatever else is known stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from kernelwright import sandbox
from kernelwright.judge import profile
from kernelwright.judge.profile import counters

REFUSED = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n"


def ended(code: int, out: str = "", err: str = "", killed: str = "") -> sandbox.Finished:
    """How a command ended."""
    return sandbox.Finished(returncode=code, stdout=out, stderr=err, killed=killed)


def counted(
    monkeypatch: pytest.MonkeyPatch, tool: str | None, says: Sequence[sandbox.Finished], **known: float
) -> profile.Profile:
    """A profile of which some facts were known before Nsight Compute, which answers so, was asked to count."""
    monkeypatch.setattr(counters, "tool", lambda: tool)
    monkeypatch.setattr(profile, "LACKING", set())
    answers = iter(says)

    def run(subject: Any, command: list[str], program: list[str]) -> sandbox.Finished:
        return next(answers)

    found = profile.Profile(facts={"registers": 32.0, **known})
    profile._count(cast(Any, None), {}, found, run)
    return found


def test_without_the_tool_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the profile says what is missing."""
    found = counted(monkeypatch, None, [])
    assert {"registers": 32.0} == found.facts
    assert ["hardware counters: Nsight Compute is not installed"] == found.notes


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (ended(1, REFUSED), "ERR_NVGPUCTRPERM"),
        (ended(-9, killed="it took more than 60 s"), "it took more than 60 s"),
        (ended(127, err="ncu: cannot execute binary file"), "cannot execute"),
    ],
)
def test_a_tool_that_counts_nothing_is_quoted(
    monkeypatch: pytest.MonkeyPatch, said: sandbox.Finished, words: str
) -> None:
    """Permission, a limit, a broken tool: never a failure of the profile."""
    found = counted(monkeypatch, "/usr/bin/ncu", [said])
    assert {"registers": 32.0} == found.facts
    assert 1 == len(found.notes) and words in found.notes[0]


def test_counters_that_a_device_lacks_are_left_out_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unknown counter makes the tool refuse all of them."""
    lacking = counters.METRICS[0]
    other = counters.METRICS[1]
    table = f'"ID","Kernel Name","{other}"\n"","","%"\n"0","k","1"\n'
    says = [
        ended(1, err=f"==ERROR== Failed to find metric {lacking}"),
        ended(0, table),
    ]
    found = counted(monkeypatch, "/usr/bin/ncu", says)
    assert lacking in profile.LACKING
    assert any("this device lacks" in note and lacking in note for note in found.notes)


@pytest.mark.parametrize(("launched", "cut"), [(24.0, 0), (30.0, 1)])
def test_launches_beyond_those_counted_are_noted(monkeypatch: pytest.MonkeyPatch, launched: float, cut: int) -> None:
    """The bytes of the first 24 launches are not those of a call of 30."""
    heads = ["ID", "Kernel Name", *counters.METRICS]
    table = [heads, ["", "", *("" for _ in counters.METRICS)]]
    table += [[str(number), "k", *("1" for _ in counters.METRICS)] for number in range(counters.MOST_LAUNCHES)]
    text = "".join('"' + '","'.join(row) + '"\n' for row in table)
    found = counted(monkeypatch, "/usr/bin/ncu", [ended(0, text)], kernels=launched)
    assert 24.0 == found.facts["device_bytes"]
    assert cut == len(found.notes) == sum("first 24 launches only, of 30 a call" in note for note in found.notes)
