# SPDX-License-Identifier: Apache-2.0
"""The page of a machine: steps in order, a roof that bends where memory meets the peak, and honest gaps."""

from __future__ import annotations

import dataclasses

from kernelwright.machine import Fact, Machine
from kernelwright.report.machine import apart, page, roofline, staircase


def machine(*facts: tuple[str, float | None]) -> Machine:
    """With these facts."""
    made = tuple(Fact(name=name, value=value, unit="u", spread=0.0, note="<why>") for name, value in facts)
    return Machine(device="cpu", name="A & B", fingerprint="f", versions=(("torch", "2"),), facts=made, measured_at=0.0)


FACTS = (
    ("bandwidth.read.2MiB_GBps", 50.0), ("bandwidth.read.16KiB_GBps", 400.0), ("bandwidth.copy.dram_GBps", 20.0),
    ("peak.gemm.float32_TFLOPs", 0.2), ("energy.per_byte_pJ", None),
)  # fmt: skip


def test_the_staircase_goes_from_small_to_large_sets() -> None:
    """Facts in any order; device memory itself is no step."""
    assert [{"label": "read", "points": [(16384.0, 400.0), (2097152.0, 50.0)]}] == staircase(machine(*FACTS))


def test_the_roof_bends_at_the_ridge() -> None:
    """200 GFLOP/s over 20 GB/s: ten FLOP a byte."""
    (line,) = roofline(machine(*FACTS))
    assert ("float32 gemm", (10.0, 200.0)) == (line["label"], line["points"][1])


def test_the_page_escapes_and_says_what_was_not_measured() -> None:
    """No script, nothing fetched; a machine without facts has a page too."""
    text = page(machine(*FACTS))
    assert "A &amp; B" in text and "not measured" in text and "&lt;why&gt;" in text and "<path" in text
    assert "<script" not in text and "http" not in text.replace("http-equiv", "")
    assert "Not measured." in page(machine())


def test_a_device_that_is_shared_or_changes_its_clocks_is_said_to_be_so() -> None:
    """One of two measured facts spreads by half: a sentence on the page, with the worst; none for a steady device."""
    rough = dataclasses.replace(machine(*FACTS).facts[0], spread=0.5)
    shared = dataclasses.replace(machine(*FACTS[1:3]), facts=(*machine(*FACTS[1:3]).facts, rough))
    assert "samples of 1 of 3 facts spread by more than 20% (most: bandwidth.read.2MiB_GBps, 50%)" in shared.unsteady()
    assert shared.unsteady() in page(shared)
    assert "" == machine(*FACTS).unsteady()


def test_labels_of_equal_lines_do_not_overlap() -> None:
    """Three peaks at one height: their labels stand a letter's height apart, inside the page, in their order."""
    drawn = [{"label": name, "y": y} for name, y in (("a", 290.0), ("b", 291.0), ("c", 289.0), ("d", 40.0))]
    apart(drawn)
    heights = {line["label"]: line["y"] for line in drawn}
    assert {"d": 40.0, "c": 272.0, "a": 284.0, "b": 296.0} == heights
