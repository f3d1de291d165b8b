# SPDX-License-Identifier: Apache-2.0
"""Spaces of matrix products carry what the learnt model expects; other structures stay as they are."""

from __future__ import annotations

import dataclasses

from kernelwright.machine import Fact, Machine
from kernelwright.proposers import Structure
from kernelwright.proposers.templates import expected, triton_matmul
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Task
from kernelwright.tuning import Space

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y)


def get_inputs():
    return [torch.randn(512, 256), torch.randn(256, 1024)]


def get_init_inputs():
    return []
"""
RATES = (
    ("bandwidth.copy.dram_GBps", 4200.0), ("peak.gemm.bfloat16_TFLOPs", 780.0), ("peak.gemm.tf32_TFLOPs", 370.0),
)  # fmt: skip


def machine(*rates: tuple[str, float]) -> Machine:
    """A device of which only these facts are known."""
    facts = tuple(Fact(name=name, value=value, unit="", spread=0.0, note="") for name, value in rates)
    return Machine(device="cuda:0", name="x", fingerprint="0", versions=(), facts=facts, measured_at=0.0)


def test_a_product_gets_an_expectation_for_every_tile_and_nothing_else_changes() -> None:
    """All 162 tiles; the parameters, constraints and order of the structure stay, and so does one without tiles."""
    program = lower(capture(Task(name="t", form="kernelbench", reference=SOURCE)))
    assert (512, 1024, 256) == expected.largest(program)
    plain = Structure(
        name="rowwise.triton", note="", language="triton", order=0.4, space=Space(parameters=(), constraints=())
    )
    tiled = dataclasses.replace(plain, name="matmul.triton", space=triton_matmul.space(program))
    first, second = expected.ordered([plain, tiled], program, machine(*RATES))
    assert (plain, None) == (first, tiled.space.expected)
    known = second.space.expected
    assert known is not None and (162, expected.NAMES) == (len(known.costs), known.names)
    assert tiled == dataclasses.replace(second, space=dataclasses.replace(second.space, expected=None))


def test_without_the_machine_s_rates_nothing_is_expected() -> None:
    """One rate is missing, or there is no machine."""
    program = lower(capture(Task(name="t", form="kernelbench", reference=SOURCE)))
    tiled = Structure(name="m", note="", language="triton", order=0.4, space=triton_matmul.space(program))
    for known in (None, machine(*RATES[:2])):
        assert [tiled] == expected.ordered([tiled], program, known)
