# SPDX-License-Identifier: Apache-2.0
"""What every strategy promises, and what each is for, on answers made up by a scripted proposer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kernelwright.search import (
    Ask,
    Bandit,
    Beam,
    BestOfN,
    Chain,
    Contrast,
    Evolution,
    MapElites,
    Mcts,
    Strategy,
    Told,
)
from kernelwright.search.population import shingles

MAKERS: dict[str, Callable[[int, int], Strategy]] = {
    "best-of-n": lambda most, seed: BestOfN(most, seed),
    "chain": lambda most, seed: Chain(most, seed, rollback=False),
    "chain with rollback": lambda most, seed: Chain(most, seed),
    "beam": lambda most, seed: Beam(most, seed),
    "mcts": lambda most, seed: Mcts(most, seed),
    "map-elites": lambda most, seed: MapElites(most, seed, axes=("cell",)),
    "evolution": lambda most, seed: Evolution(most, seed),
    "contrast": lambda most, seed: Contrast(most, seed),
}


def answer(ask: Ask, seed: int = 0, fails: float = 0.3) -> Told:
    """A made-up outcome that depends on the ask alone."""
    dice = random.Random(f"{seed}/{ask.number}/{ask.parents}")
    score = None if dice.random() < fails else round(dice.uniform(-1, 3), 3)
    features = (("cell", dice.choice("abc")), ("proxy:bound", f"{dice.random():.3f}"))
    return Told(candidate=f"c{ask.number}", score=score, features=features, text=f"x = {ask.number} + y{ask.number}")


def play(strategy: Strategy, most: int = 10_000, seed: int = 0, fails: float = 0.3) -> list[tuple[Ask, Told]]:
    """Ask and answer until the strategy is done."""
    log = []
    while len(log) < most and (ask := strategy.ask()) is not None:
        told = answer(ask, seed, fails)
        strategy.tell(ask, told)
        log.append((ask, told))
    return log


@pytest.mark.parametrize("name", MAKERS)
def test_a_strategy_asks_exactly_its_budget_and_keeps_the_best(name: str) -> None:
    """40 asks, numbered 0 to 39, parents always among what was answered; best() is the best answer."""
    strategy = MAKERS[name](40, 1)
    log = play(strategy)
    assert list(range(40)) == [ask.number for ask, _ in log]
    known: set[str] = set()
    for ask, told in log:
        assert set(ask.parents) | set(ask.examples) <= known
        known.add(told.candidate)
    best = strategy.best()
    assert best is not None
    assert max(told.score for _, told in log if told.score is not None) == best.score


@pytest.mark.parametrize("name", MAKERS)
def test_equal_seeds_and_answers_give_equal_asks(name: str) -> None:
    """Replaying the answers restores the state: a run killed in the middle goes on as if it had not been."""
    first, again = MAKERS[name](30, 5), MAKERS[name](30, 5)
    log = play(first)
    for ask, told in log[:15]:
        assert ask == again.ask()
        again.tell(ask, told)
    assert [ask for ask, _ in log[15:]] == [ask for ask, _ in play(again)]


@pytest.mark.parametrize("name", MAKERS)
def test_a_strategy_survives_nothing_but_failure(name: str) -> None:
    """When every candidate is rejected the budget is spent and there is no best."""
    strategy = MAKERS[name](25, 0)
    assert 25 == len(play(strategy, fails=1.0))
    assert strategy.best() is None


@pytest.mark.parametrize("name", MAKERS)
def test_answers_may_come_late_and_out_of_order(name: str) -> None:
    """Up to three asks are open at once and answered in reverse; nothing is lost, nothing asked twice."""
    strategy, done = MAKERS[name](24, 3), 0
    while True:
        batch = [ask for _ in range(3) if (ask := strategy.ask()) is not None]
        if not batch:
            break
        for ask in reversed(batch):
            strategy.tell(ask, answer(ask))
            done += 1
    assert 24 == done
    closed = Ask(number=3, edit="fresh", parents=(), examples=(), place="")
    with pytest.raises(KeyError):
        strategy.tell(closed, answer(closed))


def told(name: str, score: float | None, text: str = "", **features: str) -> Told:
    """An answer by hand."""
    return Told(candidate=name, score=score, features=tuple(features.items()), text=text)


def test_rollback_returns_to_the_best_and_its_absence_does_not() -> None:
    """After a worse step the chain edits the best again; the published chain edits the worse one."""
    parents = []
    for rollback in (True, False):
        chain = Chain(5, rollback=rollback)
        for name, score in (("good", 2.0), ("bad", -1.0)):
            ask = chain.ask()
            assert ask is not None
            chain.tell(ask, told(name, score))
        following = chain.ask()
        assert following is not None
        parents.append(following.parents)
    assert [("good",), ("bad",)] == parents


def test_a_chain_abandons_what_it_cannot_repair() -> None:
    """Three repairs in a row, then a fresh start when nothing ever worked."""
    chain = Chain(6, repairs=3)
    edits = [ask.edit for ask, _ in play(chain, fails=1.0)]
    assert ["fresh", "repair", "repair", "repair", "fresh", "repair"] == edits


def test_mcts_does_not_expand_a_regression() -> None:
    """A child worse than its parent by more than the guard is never a parent itself."""
    search = Mcts(12, roots=1, guard=1.0)
    ask = search.ask()
    assert ask is not None
    search.tell(ask, told("root", 2.0))
    used = set()
    for number in range(11):
        ask = search.ask()
        assert ask is not None
        used |= set(ask.parents)
        search.tell(ask, told(f"c{number}", -5.0))
    assert {"root"} == used


def test_map_elites_keeps_a_slow_program_of_another_kind() -> None:
    """Each cell keeps its own best, however much better another cell is."""
    search = MapElites(10, axes=("path",), islands=1)
    for name, score, path in (("a", 3.0, "tiled"), ("b", 0.1, "naive"), ("c", 0.5, "naive"), ("d", 0.2, "naive")):
        ask = search.ask()
        assert ask is not None
        search.tell(ask, told(name, score, path=path))
    assert {("tiled",): "a", ("naive",): "c"} == {cell: kept.candidate for cell, kept in search.cells[0].items()}


def test_evolution_refuses_a_copy_with_other_numbers_and_comments() -> None:
    """The same code with another constant and a comment is no new member; different code is."""
    search = Evolution(10)
    body = "def f(x):\n    y = x * 128\n    return y + x\n"
    for name, score, text in (
        ("a", 1.0, body),
        ("b", 0.9, body.replace("128", "256") + "# faster\n"),
        ("c", 0.5, "import os\nclass Z: pass\n"),
    ):
        ask = search.ask()
        assert ask is not None
        search.tell(ask, told(name, score, text))
    assert (["a", "c"], 1) == ([member.candidate for member in search.members], search.refused)


def test_contrast_shows_programs_whose_speeds_differ() -> None:
    """Of scores 0, 1, 2 ... 10 with three shown: the best, the middle and the worst."""
    search = Contrast(30, start=11)
    for number in range(11):
        ask = search.ask()
        assert ask is not None
        search.tell(ask, told(f"s{number}", float(number)))
    ask = search.ask()
    assert ask is not None
    assert ("contrast", ("s10", "s5", "s0")) == (ask.edit, ask.examples)


def test_a_bandit_finds_the_arm_that_pays_and_minds_the_cost() -> None:
    """The rewarding arm is pulled most; of two equal arms the cheaper one is."""
    pulled: list[str] = []
    bandit = Bandit(["dull", "good"])
    for _ in range(60):
        pulled.append(arm := bandit.choose())
        bandit.tell(arm, 1.0 if arm == "good" else 0.0, 1.0)
    assert pulled.count("good") > 40
    thrifty = Bandit(["dear", "cheap"])
    for _ in range(60):
        pulled.append(arm := thrifty.choose())
        thrifty.tell(arm, 0.5, 10.0 if arm == "dear" else 1.0)
    assert pulled.count("cheap") > 40


def test_a_retired_arm_is_never_chosen_again_and_the_last_one_stays() -> None:
    """The other arm takes every pull from then on."""
    bandit = Bandit(["a", "b"])
    bandit.tell("a", 5.0, 1.0)
    bandit.retire("a")
    assert ["b", "b"] == [bandit.choose() for _ in range(2)]
    with pytest.raises(ValueError, match="last"):
        bandit.retire("b")


def test_directives_of_c_are_code_and_comments_of_python_are_none() -> None:
    """Programs whose files stand behind one another: what a directive says tells them apart, a remark does not."""
    text = "def f():  # rows\n    return 1\n#pragma omp {}\n  #define N 4\n#include <cmath>\n# include the mean\n"
    assert shingles(text.format("simd")) != shingles(text.format("for"))
    assert shingles("# pragma once\n# define N 1\nx") != shingles("x")
    assert shingles("a\n# if the rows\n# define the block\nb  #if\nc") == shingles("a b c")
