# SPDX-License-Identifier: Apache-2.0
"""Odd windows: every variant's turn comes, in places nobody knows, and a wrong answer there ends the race."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import amid, factors
from kernelwright.judge.bench import Point
from kernelwright.judge.dealing import SPOTS
from kernelwright.judge.inputs import change_leaves
from kernelwright.judge.odd_calls import WHOLE, WHOLE_BYTES, OddCalls
from kernelwright.judge.spot_checks import Mismatch, SpotChecks
from kernelwright.judge.stages import Judgement
from kernelwright.judge.taken import of_calls
from kernelwright.judge.variants import AS_GIVEN, HEAVY, LIGHT, mixed
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

SETS = 18


def odd(
    forward: str = "torch.relu(x) * 2.0", inputs: str = "[torch.rand(8, 16)]", windows: int = 2, seed: int = 3
) -> OddCalls:
    """The odd windows of a small task."""
    return OddCalls(point_of(forward, inputs), random.Random(seed), windows)


def point_of(forward: str, inputs: str) -> Point:
    """The case of a small task."""
    made = instance(forward, inputs)
    return Point(made.case, made, Checker(made, seed=1), 5, {})


def checks() -> SpotChecks:
    """What a race knows: float32 answers lie about a rounding apart."""
    return SpotChecks(
        suspects=[], budget=0, thorough=True, random_outputs=False, mutates=frozenset(), dice=random.Random(1),
        tolerated=[1e-7, 1e-6, 1e-6],
    )  # fmt: skip


def answered(calls: OddCalls, answer: Any, sets: int = SETS, windows: int = 0) -> Any:
    """Run all windows with ``answer`` as the program; what its suspect recorded."""
    suspect: Any = SimpleNamespace(checks=[], sampled=0, spared=lambda result: result)
    for _ in range(windows or calls.windows):
        calls.prepare(sets, lambda: calls.point.instance.draw(calls.point.as_given, 9))
        values = calls.values()
        outputs = [[answer(*leaves)] for leaves in values]
        suspect.buffers = SimpleNamespace(answers=outputs.__getitem__, inputs=values)
        calls.look(suspect, checks(), None)
    calls.conclude(suspect)
    return suspect


def test_every_change_of_value_has_its_turn() -> None:
    """Over the windows of one race, where there are calls enough; layouts are left to the checks before it."""
    calls = odd()
    assert 2 <= len(calls.rounds(10, 10, SETS))
    names = {check.name.partition(": ")[2] for check in answered(calls, lambda x: torch.relu(x) * 2.0).checks}
    offered = [v for v in calls.point.offered if v.name != AS_GIVEN and v.layout == "contiguous"]
    assert {v.name for v in offered if not v.fresh_weights} <= names
    assert {"negated", "outliers"} <= names


@pytest.mark.parametrize("windows", [0, 1, 9], ids=["at once", "the first one later", "all later"])
def test_what_only_the_tasks_own_values_forgive_is_refused(windows: int) -> None:
    """Right on numbers from 0 to 1, wrong on negative ones: in windows that are looked at when they have run, and in
    those that are kept for when the race is over, whose buffers hold other calls by then."""
    for right in (True, False):
        calls = odd()
        calls.rounds(10, 10, SETS)
        calls.room = windows * SETS * calls.point.call_bytes
        with contextlib.nullcontext() if right else pytest.raises(Mismatch):
            answered(calls, lambda x, right=right: torch.relu(x) * 2.0 if right else x * 2.0)


def test_windows_that_are_drawn_before_come_in_turn_and_what_is_kept_is_not_what_lies_there_later() -> None:
    """Two drawn, then two run; of the first one a wrong answer, over which the second's are written."""
    calls = odd()
    calls.rounds(10, 10, SETS)
    calls.room = 2 * SETS * calls.point.call_bytes
    first, second = torch.rand(8, 16), torch.rand(8, 16)
    calls.prepare(SETS, lambda: [first])
    calls.prepare(SETS, lambda: [second])
    suspect: Any = SimpleNamespace(checks=[], sampled=0, spared=lambda result: result)
    outputs = [[torch.zeros(8, 16)] for _ in range(SETS)]
    for given, wrong in ((first, 0.5), (second, 0.0)):
        values = calls.values()
        assert sum(leaf is given for (leaf,) in values) == SETS - len(calls._chosen) > 0
        for (out,), (leaf,) in zip(outputs, values, strict=True):
            out.copy_(torch.relu(leaf) * 2.0 + wrong)
        suspect.buffers = SimpleNamespace(answers=outputs.__getitem__, inputs=values)
        calls.look(suspect, checks(), None)
    assert calls.room == 0 and not suspect.checks
    with pytest.raises(Mismatch):
        calls.conclude(suspect)


def test_random_results_have_odd_rows_too() -> None:
    """They are compared as distributions; a softmax without its maximum shows by NaN."""
    for right in (True, False):
        made = instance("torch.dropout(torch.softmax(x, -1), 0.5, True)", "[torch.randn(64, 32)]",
                        contract=Contract(random=True))  # fmt: skip
        point = Point(made.case, made, Checker(made, seed=1), 5, {})
        calls = OddCalls(point, random.Random(3), 2, strewn=("rows",))
        assert 2 <= len(calls.rounds(10, 10, SETS))

        def answer(x: torch.Tensor, *, right: bool = right) -> torch.Tensor:
            large = x.exp()
            scores = torch.softmax(x, -1) if right else large / large.sum(-1, keepdim=True)
            return torch.dropout(scores, 0.5, True)

        if right:
            assert 2 == len(answered(calls, answer).checks)
        else:
            with pytest.raises(Mismatch, match="NaN"):
                answered(calls, answer)


def test_there_are_none_where_nothing_can_be_varied() -> None:
    """Nobody asked for them, or there is no input. Whole numbers are skewed and change places."""
    assert frozenset() == odd(windows=0).rounds(10, 20, SETS)
    assert frozenset() != odd("x + 1", "[torch.randint(0, 9, (8, 16))]").rounds(10, 20, SETS)


def test_a_window_of_one_call_holds_one_of_them() -> None:
    """Calls of several milliseconds are timed one to a window. Of single changes two of ten would have their turn, and
    what any of the others shows would pass; so that one call has all of them."""
    calls = odd()
    calls.rounds(10, 10, 1)
    assert {"strewn"} == {variant.change for variant in calls._deck}
    given = torch.rand(8, 16)
    calls.prepare(1, lambda: [given])
    [[made]] = calls.values()
    assert not torch.equal(given, made), "odd rows"


def test_what_one_change_alone_shows_is_refused_in_windows_of_one_call() -> None:
    """A sum of exponentials without its maximum overflows for the largest values only. Every third odd call has a few
    of the changes, by lot: of forty races no more than a few let it pass, where of single changes most did."""
    refused = 0
    for seed in range(40):
        calls = odd("torch.logsumexp(x, -1)", "[torch.randn(64, 16)]", seed=seed)
        calls.rounds(10, 10, 1)
        try:
            answered(calls, lambda x: x.exp().sum(-1).log(), sets=1)
        except Mismatch:
            refused += 1
    assert refused >= 34


def test_what_is_odd_is_a_change_of_what_timed_calls_are_given() -> None:
    """Where those are recombined, a program that knows what they are made of would see that others are not."""
    calls = odd(inputs="[torch.rand(64, 16)]")
    calls.strewn = ("rows",)
    calls.rounds(10, 10, 1)
    given = torch.rand(64, 16)
    calls.prepare(1, lambda: [given])
    [[made]] = calls.values()
    same = (made == given).all(-1).sum()
    assert 64 - 10 <= int(same) < 64


def test_spots_are_a_few_elements_of_a_few_rows() -> None:
    """A sample that has some elements of every row does not show them."""
    given = torch.rand(512, 256)
    [variant, *_] = mixed(Contract(), few=True)
    counts = []
    for seed in range(20):
        [made] = change_leaves([given], replace(variant, strewn="spots"), seed)
        changed = made != given
        counts.append(int(changed.sum()))
        assert int(changed.any(-1).sum()) <= 9
        assert int(changed.sum(-1).max()) <= 256 // SPOTS + 1
    assert min(counts) < 48 < max(counts)


def test_two_elements_of_all_are_outliers_up_and_down() -> None:
    """A program that looks at every 64th element of all rows sees spots every second time, and these one time in 30.
    Every second time it is one element, large enough for an exponential, and too small for a mean of squares."""
    given = torch.randn(512, 256)
    [variant, *_] = mixed(Contract(), few=True)
    places, ends = set(), []
    for seed in range(20):
        [made] = change_leaves([given], replace(variant, strewn="ends"), seed)
        at = (made != given).nonzero().tolist()
        places |= {tuple(one) for one in at}
        if len(at) == 2:
            assert [1e3 * float(given.min()), 1e3 * float(given.max())] == pytest.approx(
                sorted(float(made[row, column]) for row, column in at)
            )
            continue
        [(row, column)] = at
        end = given.max() if made[row, column] > 0 else -given.min()
        assert factors.MILD[0] <= float(made[row, column].abs() / end) <= factors.MILD[1] * (1 + 1e-6)
        assert float(made.square().mean()) < 2.0
        ends.append(float(made[row, column]))
    assert 20 < len(places) < 40
    assert min(ends) < 0 < max(ends)
    [plainly] = change_leaves([given], replace(variant, strewn="ends", factors=(1e-3,)), 1)
    assert int((plainly != given).sum()) > 0


def test_the_dearest_cases_have_one_too() -> None:
    """A program that has heard that it is being timed would else sum first what it should clamp."""
    calls = odd("torch.logsumexp(x, -1)", "[torch.randn(64, 16)]", windows=1)
    calls.point.instance.work = HEAVY + 1
    assert 1 == len(calls.rounds(2, 2, 1))


def test_they_go_on_for_as_long_as_the_race_does_and_no_round_is_surely_without_one() -> None:
    """Else a program would wait until they are over, or count how many there were and know that no more can come."""
    point = point_of("torch.relu(x) * 2.0", "[torch.rand(8, 16)]")
    seen = [OddCalls(point, random.Random(seed), 2).rounds(5, 12, SETS, first=1) for seed in range(300)]
    assert all(sum(r < 5 for r in chosen) >= 2 and 0 not in chosen for chosen in seen)
    later = [sum(r in chosen for chosen in seen) / len(seen) for r in range(5, 12)]
    assert all(0.22 < share < 0.45 for share in later)  # 1/3, deviation 0.027
    spent = [chosen for chosen in seen if {1, 2} <= chosen]
    assert 0.2 < sum(3 in chosen for chosen in spent) / len(spent) < 0.5


def test_a_dear_call_like_eagers_is_not_compared_in_full() -> None:
    """A float64 run of one takes half a second. One that is not like eager's is, and at once."""
    calls = odd("torch.softmax(x, -1)", "[torch.randn(1100, 1000)]")
    assert calls.point.dear
    calls.rounds(5, 5, 1)
    assert ([], 2) == (lambda found: (found.checks, found.sampled))(answered(calls, lambda x: x.softmax(-1), sets=1))
    with pytest.raises(Mismatch):
        answered(calls, lambda x: x.exp() / x.exp().sum(-1, keepdim=True), sets=1, windows=6)


def test_odd_rows_are_strewn_otherwise_in_each_window_of_a_proof() -> None:
    """Spots of rows in one window of a process, or two elements of all in the other process; in the other window whole
    rows, for all changes or for some."""
    orders = set()
    for seed in range(30):
        judgement: Any = SimpleNamespace(level="precise", seed=seed, points=[plain(work=10)])
        first, second = (Judgement._strewn(judgement, number) for number in range(2))
        assert {"few", "spots", "rows", "ends"} == {*first, *second}
        assert ("spots" in first) != ("spots" in second) and ("ends" in first) != ("ends" in second)
        orders.add(first)
    assert len(orders) > 2


def plain(work: int) -> Any:
    """A case of which only the work of a call is known."""
    return SimpleNamespace(instance=SimpleNamespace(work=work))


def test_on_the_dearest_cases_one_process_of_two_has_them_by_lot() -> None:
    """Else a program that knew which could leave out in the other what the task's own values never need."""
    chosen = []
    for seed in range(40):
        judgement: Any = SimpleNamespace(level="precise", seed=seed, points=[plain(HEAVY + 1)])
        windows = [Judgement._odd_windows(judgement, number) for number in range(2)]
        assert [0, 1] == sorted(windows)
        chosen.append(windows.index(1))
        judgement.points[0] = plain(HEAVY)
        assert 2 == Judgement._odd_windows(judgement, 0) == Judgement._odd_windows(judgement, 1)
    assert {0, 1} == set(chosen)


def test_a_dear_call_has_other_constants_beside_its_odd_rows() -> None:
    """Or a mask of ones could be left out once the race has begun."""
    made = instance("x * m", "[torch.randn(16, 8), torch.ones(16, 8, dtype=torch.int64)]", args="x, m")
    point = Point(made.case, made, Checker(made), 1, {})
    made.work = LIGHT + 1
    calls = OddCalls(point, random.Random(1), 2)
    calls.rounds(10, 10, 4)
    calls.prepare(4, lambda: made.draw(point.as_given, 9))
    assert 1 == sum(bool((mask == 0).any()) for _, mask in calls.values())


def test_no_odd_call_is_one_that_the_reference_refuses() -> None:
    """A few rows by lot, or spots of them, tell nothing of the next draw: rows that are zero or negative ended it."""
    for seed in range(12):
        made = instance("torch.multinomial(x, 4)", "[torch.rand(32, 16) + 0.1]", contract=Contract(random=True))
        calls = OddCalls(Point(made.case, made, Checker(made, seed=1), seed, {}), random.Random(seed), 2)
        calls.rounds(10, 10, SETS)
        for _ in range(4):
            calls.prepare(SETS, lambda made=made, calls=calls: made.draw(calls.point.as_given, 9))
            assert all(made.eager(leaves, None) for leaves in calls.values())


def test_a_later_draw_that_the_reference_refuses_is_the_first_again() -> None:
    """All but one element of a row are zero in every second draw of two that have blank channels."""
    made = instance("x * (1 / int((x.count_nonzero(-1) > 4).all()))", "[torch.rand(32, 16) + 0.1]")
    point = Point(made.case, made, Checker(made, seed=1), 5, {})
    blank = next(v for v in point.offered if v.change == "blank channels")
    first = next(leaves for seed in range(64) if (made.accepted(leaves := made.draw(blank, seed))))
    found = of_calls(point, blank, list(range(24)), range(24), first, None)
    assert len(found) == 24 and found[0] is first and 1 < len({id(leaves) for leaves in found.values()}) < 24
    assert all(made.eager(leaves, None) for leaves in found.values())


def test_what_is_nearly_the_same_is_asked_of_the_reference_too() -> None:
    """A corner that becomes another leaves a box inside out, of which the reference has no answer: right programs were
    refused for another one than its."""
    made = odd("(x[:2, 1] - x[:2, 0]).log().sum() + x", "[torch.rand(16, 2) + torch.tensor([0.0, 1.01])]")
    made.rounds(10, 10, SETS)
    near = 0
    for seed in range(80):
        given = torch.rand(16, 2, generator=torch.Generator().manual_seed(seed)) + torch.tensor([0.0, 1.01])
        made.prepare(SETS, lambda given=given: [given])
        for (leaf,) in made.values():
            assert bool((leaf[:2, 1] - leaf[:2, 0]).log().isfinite().all())
        near += sum(variant.change == "near-duplicate" for variant, _ in made._chosen.values())
    assert near > 0


def test_what_the_reference_refuses_with_other_weights_is_no_odd_call() -> None:
    """A decay that is below one in every construction is infinite with weights of either sign: 0 times that is NaN to
    the reference, and a program that begins from zero need not compute it."""
    decay = "x + torch.exp(self.w * 1e3) * torch.zeros_like(x)"
    for forward, right, other in ((decay, True, 1.0), (decay, False, -2.0), ("x * self.w", False, 1.0)):
        made = instance(forward, "[torch.rand(8, 16)]", init="self.w = nn.Parameter(torch.tensor(-1.0))")
        calls = OddCalls(Point(made.case, made, Checker(made, seed=1), 5, {}), random.Random(3), 2)
        calls.rounds(10, 10, SETS)
        calls.prepare(SETS, lambda made=made, calls=calls: made.draw(calls.point.as_given, 9))
        values, suspect = calls.values(), SimpleNamespace(checks=[], sampled=0, spared=lambda result: result)
        answers = [[leaves[0].clone() if right else leaves[0] * 3.0] for leaves in values]
        suspect.buffers = SimpleNamespace(answers=answers.__getitem__, inputs=values)
        state = [("w", torch.tensor(other))]
        if right:
            calls.look(suspect, checks(), state)
            assert [] == suspect.checks
        else:
            with pytest.raises(Mismatch):
                calls.look(suspect, checks(), state)


def test_most_odd_windows_are_as_timed_ones_are_but_for_a_few_calls() -> None:
    """Who tells by the time between two calls that results are copied after each is met in these. On a device alone."""
    asked: list[list[int]] = []

    class Told:
        device = "cuda"

        def window(self, order: list[int], *, grad: bool, at_once: bool) -> None:
            assert at_once
            asked.append([])

        def looked_at(self, order: list[int], places: list[int], *, grad: bool) -> None:
            asked.append([order[place] for place in places])

    calls, told = odd(), Told()
    for _ in range(60):
        calls._given, calls._chosen = [[torch.zeros(())]] * 20, {}
        calls.window(told, random.sample(range(20), 20), grad=False)  # type: ignore[arg-type]  # a program to that extent
        assert sorted(calls._chosen) == sorted(asked[-1]), "what is looked at is compared"
    assert {0, amid.LOOKS} == {len(some) for some in asked} and 4 < asked.count([]) < 28
    asked.clear()
    calls.window(told, [0, 1], grad=False)  # type: ignore[arg-type]
    assert [[]] == asked, "a short one has no room for them"
    told.device = "cpu"
    for _ in range(20):
        calls.window(told, list(range(20)), grad=False)  # type: ignore[arg-type]
    assert [[]] * 21 == asked


def test_a_device_has_calls_of_a_dear_case_that_are_changed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the one with odd rows, a few in each window, of all changes in turn: whether a mask is causal, or all rows
    lie far from zero, no odd row says. A processor has no time for them, nor is there any in windows of one call."""
    monkeypatch.setattr(Point, "dear", True)
    for kind, sets, bytes_, whole in (("cuda", SETS, 0, True), ("cpu", SETS, 0, False), ("cuda", 1, 0, False),
                                      ("cuda", SETS, WHOLE_BYTES + 1, False)):  # fmt: skip
        calls = odd("torch.softmax(x, -1)", "[torch.randn(8, 16)]")
        calls.point.call_bytes += bytes_
        calls.point.instance.device = torch.device(kind)
        monkeypatch.setattr(calls.point.instance, "usable", lambda variant, seed: True)
        assert calls.rounds(8, 8, sets)
        kinds = {variant.change for variant in (*calls._always, *calls._deck)}
        assert whole == (len(calls._deck) > WHOLE and len(kinds) > 8) and "strewn" in kinds
        calls.point.instance.device = torch.device("cpu")
        seen = set[str]()
        for _ in range(12):
            calls.prepare(sets, lambda: [torch.zeros(8, 16)])
            calls.values()
            changed = [variant.change for variant, _ in calls._chosen.values()]
            assert len(changed) == (1 + WHOLE if whole else 1) and changed.count("strewn") == 1
            seen.update(changed)
        assert whole == (len(seen) > 8)
