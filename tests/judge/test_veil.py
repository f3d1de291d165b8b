# SPDX-License-Identifier: Apache-2.0
"""Inputs that are hidden: which words, that they come back, and results that are copied right after each call."""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Callable, Sequence

import pytest
import torch

from kernelwright.judge import amid, measure, skeletons, veil, wires
from kernelwright.judge.buffers import Buffers, CallPlan, TensorSpec
from kernelwright.judge.runner import Runner
from kernelwright.judge.veil import DELAY_S, LEAST, STEP, Delay, Veil, Words


def _buffers(*shapes: tuple[int, ...], dtype: str = "float32", sets: int = 3) -> Buffers:
    inputs = tuple(TensorSpec.contiguous(shape, dtype) for shape in shapes)
    outputs = (TensorSpec.contiguous((4,), "float32"),)
    arguments, _ = skeletons.flatten([torch.zeros(1)] * len(shapes))
    result, _ = skeletons.flatten(torch.zeros(1))
    plan = CallPlan(arguments=arguments, inputs=inputs, results=result, outputs=outputs, sets=sets)
    made = Buffers.create(plan, "cpu")
    for given in made.inputs:
        for tensor in given:
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) % 2)
    return made


@pytest.mark.parametrize("first", [0, 7, 508, 12345])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_some_words_of_every_input_are_hidden_and_come_back(dtype: str, first: int) -> None:
    made = _buffers((100, 100), (3,), dtype=dtype)
    before = [[tensor.clone() for tensor in given] for given in made.inputs]
    words = Words(made, (), first)
    words.invert([0, 2])
    for index, given in enumerate(made.inputs):
        for tensor, was in zip(given, before[index], strict=True):
            changed = int((tensor.view(torch.uint8) != was.view(torch.uint8)).sum())
            assert (changed == 0) == (index == 1)
            assert changed <= max(4 * (tensor.nbytes // 4 // STEP + 1), 4 * 2 * LEAST)
    assert made.guards_intact()
    words.invert([0, 2])
    for given, was in zip(made.inputs, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(given, was, strict=True))


def test_a_large_input_has_few_words_hidden_in_places_said_by_the_first() -> None:
    made = _buffers((1000, 100), sets=1)
    found = []
    for first in (3, 4):
        words = Words(made, (), first)
        words.invert([0])
        found.append(set((made.inputs[0][0].reshape(-1) != torch.arange(100_000) % 2).nonzero().flatten().tolist()))
        words.invert([0])
    assert all(100_000 // STEP <= len(places) <= 100_000 // STEP + 1 for places in found)
    assert not found[0] & found[1]


def test_a_small_input_has_at_least_some_words_hidden() -> None:
    made = _buffers((40,), sets=1)
    Words(made, (), 1).invert([0])
    assert int((made.inputs[0][0] != torch.arange(40) % 2).sum()) >= LEAST - 1


def test_an_input_that_results_lie_in_stays() -> None:
    made = _buffers((50,), (60,), sets=1)
    Words(made, [(0, 1)], 5).invert([0])
    assert int((made.inputs[0][0] != torch.arange(50) % 2).sum()) > 0
    assert torch.equal(made.inputs[0][1], (torch.arange(60) % 2).float())


def test_keys_are_taken_off_by_themselves_alone() -> None:
    made = _buffers((500,), sets=2)
    words = Words(made, (), 2)
    keys = [key.random_() for key in words.keys()]
    others = [key.clone().random_() for key in keys]
    words.turn(keys)
    words.turn(others)
    assert not torch.equal(made.inputs[0][0], (torch.arange(500) % 2).float())
    words.turn(others)
    words.turn(keys)
    assert torch.equal(made.inputs[1][0], (torch.arange(500) % 2).float())


@pytest.mark.parametrize("at_once", [False, True])
def test_a_result_is_copied_before_the_next_call_where_that_is_wanted(at_once: bool) -> None:
    """Of a program that returns the same memory each time only so does the first result come through."""
    made, memory = _buffers((4,), sets=2), torch.zeros(4)
    made.inputs[0][0].fill_(3.0)
    made.inputs[1][0].fill_(5.0)
    _run(made, memory.copy_, [0, 1], at_once=at_once)
    assert made.outputs[0][0].tolist() == [3.0 if at_once else 5.0] * 4
    assert made.outputs[1][0].tolist() == [5.0] * 4


def test_hidden_inputs_are_shown_by_the_stream_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set's before its own call; who looked before that saw something else."""
    slept: list[int] = []
    monkeypatch.setattr(torch.cuda, "_sleep", slept.append)
    made, seen = _buffers((4,), sets=3), []
    Words(made, (), 9).invert([2, 0])

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append([torch.equal(given[0], torch.tensor([0.0, 1.0, 0.0, 1.0])) for given in made.inputs])
        return x.clone()

    _run(made, look, [2, 0], at_once=True, first=9)
    assert seen == [[False, True, True], [True, True, True]] and len(slept) == 2
    assert made.outputs[2][0].tolist() == [0.0, 1.0, 0.0, 1.0]


def test_a_few_calls_amid_others_are_shown_late_and_copied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that returns the same memory each time only their results come through; the host tells the stream of their
    inputs two calls before, and nothing lies between those that are not looked at."""
    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: log.append("sleeps"))
    made, memory = _buffers((4,), sets=8), torch.zeros(4)
    for index in range(8):
        made.inputs[index][0].fill_(float(index))
    order = [7, 6, 5, 4, 3, 2, 1, 0]
    Words(made, (), 9).invert([order[3], order[6]])

    def called(x: torch.Tensor) -> torch.Tensor:
        log.append(f"{x[0]:.0f}")
        return memory.copy_(x)

    _run(made, called, order, at_once=False, first=9, looked_at=[3, 6])
    assert ["7", "sleeps", "6", "5", "4", "sleeps", "3", "2", "1", "0"] == log
    assert [0.0, 1.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0] == [made.outputs[index][0][0].item() for index in range(8)]


def test_where_is_looked_no_program_knows() -> None:
    """Anywhere but at the first calls of a window, never at two that are near; nowhere in short ones."""
    dice, seen = random.Random(3), set[int]()
    for _ in range(400):
        some = amid.places(20, dice)
        assert len(some) == amid.LOOKS and min(some) >= amid.AHEAD and max(some) < 20
        assert all(after > before + 1 for before, after in itertools.pairwise(some))
        seen.update(some)
    assert len(seen) > 12 and not amid.places(amid.LEAST - 1, dice) and len(amid.places(amid.LEAST, dice)) == amid.LOOKS


def _run(
    made: Buffers,
    module: Callable[[torch.Tensor], torch.Tensor],
    order: list[int],
    *,
    at_once: bool,
    first: int = -1,
    looked_at: Sequence[int] = (),
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        running = Runner(theirs, "cpu", 0)
        running.module, running.buffers = module, made
        running.calls = [running._arguments(index) for index in range(made.plan.sets)]
        if first >= 0:
            running.do_uncover({"shown": [], "first": first}, [])
        ours.send(wires.asking(7, taken=False, keep=False))
        running.window(wires.go(7, order, grad=False, at_once=at_once, looked_at=looked_at))


@pytest.mark.parametrize("host_ms", [0.3, 3.0])
@pytest.mark.parametrize("waits", [False, True])
def test_a_stream_sleeps_for_longer_than_the_host_takes(
    host_ms: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside a slow host; not much longer, nor longer each time, where the program waits for the stream."""
    now, slept = [0.0], [0.0]
    monkeypatch.setattr(veil.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: slept.append(cycles / veil.SLEEP_HZ))
    delay = Delay()
    for _ in range(6):
        delay.begin()
        now[0] += host_ms * 1e-3 + waits * slept[-1]
        delay.end()
    for seconds in slept[-3:]:
        assert 2 * host_ms * 1e-3 < seconds < 6 * host_ms * 1e-3
        assert DELAY_S[0] <= seconds <= DELAY_S[2]


def test_what_is_hidden_lies_elsewhere_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who saw which words are hidden before a window kept just those, and mended them after it; all come back."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    made, one = _buffers((1000, 100), sets=1), Veil("cpu")
    one._over, one._random = (made, ()), torch.Generator()
    usual, found = torch.arange(100_000) % 2, list[set[int]]()
    for _ in range(4):
        one.drop()
        one.drop()  # once is enough
        found.append(set((made.inputs[0][0].reshape(-1) != usual).nonzero().flatten().tolist()))
        one.lift()
        one.lift()
        assert torch.equal(made.inputs[0][0].reshape(-1), usual.float())
    assert all(len(places) > 190 for places in found)
    assert len({min(places) % STEP for places in found}) > 1


def test_on_a_cpu_nothing_is_hidden_and_nothing_busy() -> None:
    made, veil = _buffers((500,)), Veil("cpu")
    veil.over(made, ())
    veil.drop()
    assert torch.equal(made.inputs[0][0], (torch.arange(500) % 2).float())
    veil.lift()
    assert not veil.busy(measure.clock) and veil.rests(measure.clock)
