# SPDX-License-Identifier: Apache-2.0
"""tuning.py: constraints, enumeration, and a tuner that finds the valley without asking twice."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest

from kernelwright.tuning import Expectation, Feasible, Parameter, Space, Tuner, Value, Values, key


def space(constraints: tuple[str, ...] = (), **values: tuple[Value, ...]) -> Space:
    """A space from keyword lists."""
    parameters = tuple(Parameter(name=name, values=choice) for name, choice in values.items())
    return Space(parameters=parameters, constraints=constraints)


def test_enumeration_gives_exactly_the_points_that_satisfy_every_constraint() -> None:
    """Pruning may skip work, never points."""
    rules = ("a * b <= 12", "a >= c", "b % 2 == 0 or c == 1", "max(a, c) < 7")
    a, b, c = (1, 2, 4, 6, 8), (1, 2, 3, 4), (1, 2, 8)
    feasible = Feasible(space(rules, a=a, b=b, c=c))
    expected = [
        {"a": x, "b": y, "c": z}
        for x, y, z in itertools.product(a, b, c)
        if x * y <= 12 and x >= z and (y % 2 == 0 or z == 1) and max(x, z) < 7
    ]
    assert expected == list(feasible.points())
    assert all(feasible.allows(point) for point in expected)


def test_a_constraint_prunes_before_the_rest_is_enumerated() -> None:
    """A space of 10^30 points with an impossible first parameter is empty at once."""
    many = {f"p{i}": tuple(range(10)) for i in range(30)}
    assert [] == list(Feasible(space(("p0 > 100",), **many)).points())


def test_the_default_is_made_of_first_values_and_an_empty_space_has_one_point() -> None:
    """What a proposer lists first is tried first."""
    assert {"a": 4, "b": "x"} == Feasible(space(a=(4, 2), b=("x", "y"))).default()
    assert {} == Feasible(space()).default()
    assert None is Feasible(space(("a > 5",), a=(1, 2))).default()


@pytest.mark.parametrize(
    "rule", ["__import__('os')", "a.real > 1", "[a][0] > 1", "(lambda: 1)()", "open('x')", "a > zz", "a >"]
)
def test_a_constraint_is_arithmetic_over_known_parameters_only(rule: str) -> None:
    """Constraints arrive as text from proposers and models; they are never a way to run code."""
    with pytest.raises((ValueError, SyntaxError)):
        Feasible(space((rule,), a=(1, 2)))


def test_division_by_zero_makes_a_point_infeasible() -> None:
    """Not an error: the rule simply does not hold there."""
    assert [{"a": 2}] == list(Feasible(space(("4 / a == 2",), a=(0, 2, 4))).points())


@pytest.mark.parametrize(
    "rule",
    ["9 ** 9 ** 9 ** 9 > a", "1 << a << 2 ** 40 > 0", "2.0 ** 9999 > a", "(0 - a) ** 0.5 < 9", "1 << 0 - a > 0",
     "1.5 << a > 0", "min(a) > 0", "max(a, b) > 1"],
)  # fmt: skip
def test_what_has_no_value_or_a_gigantic_one_makes_a_point_infeasible(rule: str) -> None:
    """Not an error, and decided at once: two of these numbers would fill any memory."""
    assert [] == list(Feasible(space((rule,), a=(1, 2), b=("x", "y"))).points())


@pytest.mark.parametrize(
    "rule", ["'x' * 10 ** 10 == a", "(a,) * 10 ** 10 == a", "'%9999999999d' % a == a", "max((a, 1)) > 0",
             "('x' if a else 'y') * 10 ** 10 == a", "b'x' * 10 ** 10 == a", "-" * 300 + "a < 9"],
)  # fmt: skip
def test_words_and_lists_are_compared_and_nothing_else(rule: str) -> None:
    """Repeated or filled in they would take all memory; a line that nests too deep is not followed."""
    with pytest.raises(ValueError):
        Feasible(space((rule,), a=(1, 2)))
    assert 1 == len(list(Feasible(space(("(a, b) != (1, 'x') and b in ('x', 'z')",), a=(1, 2), b=("x", "y"))).points()))


def test_neighbours_step_in_value_order_and_words_jump_anywhere() -> None:
    """The default may stand first in the list without breaking the order of sizes."""
    feasible = Feasible(space(size=(64, 16, 32, 128), kind=("x", "y", "z")))
    found = feasible.neighbours({"size": 64, "kind": "x"})
    assert [{"size": 32, "kind": "x"}, {"size": 128, "kind": "x"}] == [p for p in found if p["kind"] == "x"]
    assert ["y", "z"] == [p["kind"] for p in found if p["size"] == 64]


def run(tuner: Tuner, cost: Callable[[dict[str, Value]], float | None], most: int) -> list[dict[str, Value]]:
    """Ask and tell until the tuner is done or ``most`` points were tried."""
    tried = []
    while len(tried) < most and (point := tuner.ask()) is not None:
        tried.append(point)
        tuner.tell(point, cost(point))
    return tried


VALLEY = space(("x * y <= 4096",), x=tuple(2**i for i in range(10)), y=tuple(2**i for i in range(10)), z=(1, 2, 3))


def valley(point: dict[str, Value]) -> float:
    """One optimum, at x=128, y=8, z=3."""
    x, y, z = (int(point[name]) for name in "xyz")
    return 1 + abs(x.bit_length() - 8) + abs(y.bit_length() - 4) + abs(z - 3)


@pytest.mark.parametrize("seed", range(10))
def test_the_tuner_reaches_the_bottom_of_a_valley(seed: int) -> None:
    """From the far corner, in a tenth of the 273 feasible points."""
    tuner = Tuner(VALLEY, seed, restarts=0)
    run(tuner, valley, 60)
    assert (1, {"x": 128, "y": 8, "z": 3}) == tuner.best


def test_no_point_is_asked_for_twice_and_all_are_feasible() -> None:
    """A duplicate would cost a build and a judgement."""
    tried = run(Tuner(VALLEY, 3, restarts=5), valley, 1000)
    assert len(tried) == len({key(point) for point in tried})
    assert all(Feasible(VALLEY).allows(point) for point in tried)


def test_rejections_do_not_stop_the_descent() -> None:
    """Half the points fail to build; the best of the others is still found near the optimum."""
    tuner = Tuner(VALLEY, 1, restarts=3)
    run(tuner, lambda p: None if int(p["y"]) == 4 else valley(p), 200)
    assert tuner.best is not None
    assert 1 == tuner.best[0]


def test_replaying_the_answers_restores_the_tuner() -> None:
    """Resume is replay: equal seeds and answers give equal questions."""
    first, second = Tuner(VALLEY, 5), Tuner(VALLEY, 5)
    for point in run(first, valley, 20):
        assert point == second.ask()
        second.tell(point, valley(point))
    assert first.ask() == second.ask()


def expecting(costs: dict[tuple[int, int], float]) -> Space:
    """Two parameters, with what a model expects of their points."""
    parameters = (Parameter(name="BM", values=(128, 64, 256)), Parameter(name="BN", values=(128, 64, 256)))
    known = Expectation(names=("BM", "BN"), costs=tuple(costs.items()), error=0.07, source="a test")
    return Space(parameters=parameters, constraints=("BM * BN <= 32768",), expected=known)


def walk(space: Space, seed: int, cost: Callable[[Values], float]) -> list[tuple[int, int]]:
    """Every point asked for, in order, when each is told its cost."""
    tuner, asked = Tuner(space, seed), []
    while (point := tuner.ask()) is not None:
        asked.append((point["BM"], point["BN"]))
        tuner.tell(point, cost(point))
    return asked


def test_an_expectation_changes_the_order_of_trials_and_nothing_else() -> None:
    """Flat costs: the same points are asked for, the default first, its neighbours as the model expects them."""
    costs = {(128, 64): 3.0, (64, 128): 1.0, (256, 128): 2.0, (128, 256): 4.0}
    told = expecting(costs)
    plain = dataclasses.replace(told, expected=None)
    orders = set()
    for seed in range(6):
        first, second = walk(told, seed, lambda point: 1.0), walk(plain, seed, lambda point: 1.0)
        assert (set(second), len(second)) == (set(first), len(first))
        assert [(128, 128), (64, 128), (256, 128), (128, 64), (128, 256)] == first[:5]
        orders.add(tuple(second[:5]))
    assert len(orders) > 1


def test_an_expectation_reports_its_own_error_over_the_points_told() -> None:
    """Expected to halve and to double, measured to stay: both are off, by a half and by the whole."""
    space = expecting({(128, 128): 2.0, (64, 128): 1.0, (256, 128): 4.0})
    tuner = Tuner(space, 0)
    assert tuner.expectation_error() is None
    for point, cost in (((128, 128), 10.0), ((64, 128), 10.0), ((256, 128), 10.0)):
        tuner.tell({"BM": point[0], "BN": point[1]}, cost)
    assert 1.0 == tuner.expectation_error()
    assert Tuner(dataclasses.replace(space, expected=None), 0).expectation_error() is None
