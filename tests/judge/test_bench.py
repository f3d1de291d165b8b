# SPDX-License-Identifier: Apache-2.0
"""What a bench draws for the rounds of a race, and which variants a dear case takes."""

from __future__ import annotations

import contextlib
import itertools
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from plain_programs import Obedient, checks_of
from plain_tasks import task

from kernelwright.judge import agreement, calls, correctness, recombined, variants
from kernelwright.judge import bench as benches
from kernelwright.judge import checks as checking
from kernelwright.judge import instance as instances
from kernelwright.judge import taken as windows
from kernelwright.judge.bench import Bench, Point
from kernelwright.judge.checks import Wrong
from kernelwright.judge.extremes import SLIGHT
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.stock import COUNT
from kernelwright.judge.weights import State

TIED = "self.a = nn.Linear(64, 64)\nself.b = nn.Linear(64, 64)\nself.b.weight = self.a.weight"


def test_weights_too_dear_to_draw_are_recombined_anew_each_round_and_stay_tied() -> None:
    """No two rounds share their weights, whatever a draw may cost; tied names get one tensor."""
    bench = Bench(task("self.b(self.a(x))", "[torch.randn(8, 64)]", init=TIED), "cpu")
    for budget in (10.0, 0.0):
        states = [dict(state) for state in itertools.islice(bench.states(bench.timed.instance, 7, budget, None), 4)]
        assert all(state["a.weight"] is state["b.weight"] for state in states)
        for one, other in itertools.combinations(states, 2):
            assert not torch.equal(one["a.weight"], other["a.weight"])
        assert all(0.5 < float(state["a.weight"].std() / states[0]["a.weight"].std()) < 2.0 for state in states)


def test_every_second_state_of_odd_turns_is_moved_as_training_moves_it() -> None:
    """The first of them is; without a way to move them none is."""
    bench = Bench(task("x * self.w", "[torch.randn(8, 64)]", init="self.w = nn.Parameter(torch.ones(64))"), "cpu")
    for how, wanted in (("signs", [True, False, True, False]), ("", [False] * 4)):
        states = itertools.islice(bench.states(bench.timed.instance, 7, 10.0, None, how), 4)
        assert wanted == [bool((dict(state)["w"] < 0).any()) for state in states]


def test_inputs_are_asked_about_though_others_were_taken() -> None:
    """Of a quotient whose divisor was not the one that was thinned out, in the judgement of another program."""
    point = Bench(task("(x[0] + x[1]) / x[0]", "[[torch.randn(8, 64), torch.randn(8, 64)]]"), "cpu").timed
    sparse = next(variant for variant in point.offered if variant.change == "sparse")
    drawn = [point.instance.draw(sparse, seed) for seed in range(20)]
    finite = [leaves for leaves in drawn if bool((leaves[0] != 0).all())]
    others = [leaves for leaves in drawn if bool((leaves[0] == 0).any())]
    state = point.instance.first_state
    assert [point.accepts(sparse, leaves, state) for leaves in (finite[0], others[0], finite[1])] == [True, False, True]


def test_dear_weights_are_drawn_once_and_no_two_requests_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request is made of the first one's weights: new values, without a draw."""
    monkeypatch.setattr(checking, "DEAR_BYTES", 0)
    bench = Bench(task("self.b(self.a(x))", "[torch.randn(8, 64)]", init=TIED), "cpu")
    checks = checks_of(bench)
    drawn: list[int] = []
    real = Instance.draw_state

    def draw(self: Instance, seed: int) -> State:
        drawn.append(seed)
        return real(self, seed)

    monkeypatch.setattr(Instance, "draw_state", draw)
    states = [dict(checks._fresh_state(bench.timed, seed)) for seed in (1, 2, 3)]
    assert drawn == [1]
    for one, other in itertools.combinations(states, 2):
        assert not torch.equal(one["a.weight"], other["a.weight"])


def test_dear_cases_take_together_what_smaller_ones_took_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only names taken in the same manner count; fresh weights and the task's own draws are never left out."""
    bench = Bench(task("self.b(self.a(x))", "[torch.randn(8, 64)]", init=TIED), "cpu")
    point = bench.timed
    names = [v.name for v in point.offered]
    taken: list[list[str]] = []

    def record(self: Any, program: Any, point: Point, chosen: list[Variant]) -> list[Variant]:
        taken.append([v.name for v in chosen])
        return [v for v in chosen if v.name != "far from zero"]  # as if the reference refused it

    monkeypatch.setattr(correctness.Correctness, "_variants", record)
    for manner, dear in itertools.product((point.manner, ("bfloat16", False)), (True, False)):
        taken.clear()
        monkeypatch.setattr(type(point), "dear", dear)
        checks = checks_of(bench)
        seen = {(manner, name) for name in names}
        checks._one_by_one(None, point, point.offered, seen)  # type: ignore[arg-type]
        if manner == point.manner and dear:
            own = [v.name for v in point.offered if v.fresh_weights or v.name == "as given" or v.scale == SLIGHT]
            assert set(own) < set(taken[0]) and len(taken[0]) == len(own) + variants.BY_LOT
            assert taken[1][0].startswith("mixed rows") and len(taken) == 2
            assert any("checked one by one on cases smaller than" in text for text in checks.conditions)
        else:
            assert taken == [names]
            assert {(point.manner, name) for name in names if name != "far from zero"} <= seen
            assert manner == point.manner or (point.manner, "far from zero") not in seen


def test_no_row_of_a_recombined_draw_is_in_proportion_to_one_seen_before() -> None:
    """Else sorting, normalising or a product of matrices could be done by looking up old rows; zeros stay zeros."""
    bench = Bench(task("torch.relu(x)", "[torch.randn(512, 256).relu()]"), "cpu")
    seen = [leaves[0] for leaves in itertools.islice(bench.draws(3, 0.0), 6)]
    for one, other in itertools.combinations(seen, 2):
        both = (one != 0) & (other != 0)
        assert not torch.equal(one, other)
        ratios = torch.where(both, one / other.where(both, torch.ones(())), torch.nan)
        spread = torch.nan_to_num(ratios - ratios.nanmedian(-1, keepdim=True).values).abs().amax(-1)
        assert float(spread.min()) > 1e-3
    assert all(0.4 < float((leaves == 0).float().mean()) < 0.6 for leaves in seen)


def test_small_inputs_are_moved_element_by_element_but_for_bounds() -> None:
    """One factor for all would leave rows in proportion, which sort and normalise alike. What is in order stays so."""
    dice = torch.Generator().manual_seed(1)
    made = recombined.Recombiner(torch.device("cpu"))
    rows, edges = torch.rand(64, 16) + 1, torch.rand(64).sort().values
    boxes = torch.cat([torch.rand(64, 2), torch.rand(64, 2) + 0.99], -1)
    ratios = made.of(rows, rows, dice) / rows
    assert int((ratios.amax(-1) - ratios.amin(-1) > 1e-3).sum()) == 64
    spread = [float(ratios.max() - ratios.min()) for ratios in (made.of(edges, edges, dice) / edges for _ in range(4))]
    assert max(spread) < 1e-5
    for _ in range(4):
        moved = made.of(boxes, boxes, dice)
        assert torch.equal(moved.argsort(-1), boxes.argsort(-1))
        apart = (moved / boxes).amax(-1) - (moved / boxes).amin(-1)
        assert 32 < int((apart > 1e-3).sum())
    times = torch.stack([torch.rand(64).sort().values, torch.rand(64)], -1)
    ratios = made.of(times, times, dice) / times
    assert float(ratios.max() - ratios.min()) < 1e-4
    directions = torch.nn.functional.normalize(torch.randn(64, 3), dim=-1)
    sure = torch.softmax(torch.randn(64, 3), -1)
    for kept, size in ((directions, torch.linalg.vector_norm), (sure, torch.sum)):
        moved = made.of(kept, kept, dice)
        assert float((size(moved, dim=-1) - 1).abs().max()) < 1e-5
        assert 48 < int(((moved / kept).amax(-1) - (moved / kept).amin(-1) > 1e-3).sum())


def test_no_row_of_few_whole_numbers_comes_again_in_recombined_draws() -> None:
    """A program kept the answers of all rows that it had seen, of three draws, and found two of three again."""
    dice = torch.Generator().manual_seed(1)
    made = recombined.Recombiner(torch.device("cpu"))
    shapes = {(64, 16): 1000, (256, 2): 1000, (32, 3, 4): 1000, (64, 24): 2}
    for shape, most in shapes.items():
        stock = [torch.randint(most, shape) for _ in range(3)]
        stock = [values.bool() for values in stock] if most == 2 else stock
        seen = {row.numpy().tobytes() for values in stock for row in values.view(-1, shape[-1])}
        draws = [made.of(stock[0], stock[1], dice) for _ in range(4)]
        draws += [drawn[0] for drawn in made.batch([[values] for values in stock], (), 4, dice)]
        for values in draws:
            assert values.dtype is stock[0].dtype and int(values.max()) < most
            rows = {row.numpy().tobytes() for row in values.view(-1, shape[-1])}
            assert len(rows & seen) < len(rows) / 8
            seen |= rows


@pytest.mark.parametrize(
    "values",
    [
        torch.arange(40) * 2,
        torch.arange(48).view(24, 2),
        torch.arange(24)[None, :] < torch.randint(1, 24, (16, 1)),
    ],
)
def test_whole_numbers_between_which_there_are_rules_come_in_stretches_of_other_draws(values: torch.Tensor) -> None:
    """Borders, and lengths as masks: every second one from another draw would be none."""
    assert recombined._rule(values) is None
    made = recombined.Recombiner(torch.device("cpu")).of(values, values, torch.Generator().manual_seed(1))
    assert torch.equal(made, values)


def test_rows_of_numbers_that_differ_are_put_in_another_order_and_rows_in_order_stay_so() -> None:
    """Permutations, chosen places, beginnings and ends. That rows of a few among many differ is luck."""
    dice, made = torch.Generator().manual_seed(1), recombined.Recombiner(torch.device("cpu"))
    whole = [torch.stack([torch.randperm(16) for _ in range(64)]) for _ in range(2)]
    chosen = [torch.stack([torch.randperm(40)[:12] for _ in range(64)]) for _ in range(2)]
    one = [torch.randperm(64) for _ in range(2)]
    for base, other in (whole, chosen, one):
        assert recombined.APART == recombined._rule(base)
        drawn = made.of(base, other, dice)
        assert torch.equal(drawn.sort(-1).values, base.sort(-1).values) and not torch.equal(drawn, base)
    ends = [torch.randint(0, 99, (64, 2)).sort(-1).values + torch.tensor([0, 1]) for _ in range(2)]
    known = {tuple(row) for each in ends for row in each.tolist()}
    for _ in range(4):
        drawn = made.of(*ends, dice)
        assert bool((drawn.diff(dim=-1) > 0).all())
        assert len({tuple(row) for row in drawn.tolist()} & known) < 32
    assert "" == recombined._rule(torch.randint(0, 1 << 20, (8, 16)))


def test_no_row_of_whole_numbers_in_a_recombined_draw_was_seen_before() -> None:
    """They cannot be moved a little: rows of two draws are mixed element by element, or old rows could be looked up."""
    bench = Bench(task("x.sort(-1)[0]", "[torch.randint(0, 1000, (256, 512))]"), "cpu")
    seen: set[bytes] = set()
    for (leaf,) in itertools.islice(bench.draws(3, 0.0), 6):
        rows = {row.numpy().tobytes() for row in leaf}
        assert not rows & seen and 0 <= int(leaf.min()) and int(leaf.max()) < 1000
        seen |= rows


def test_a_reference_that_refuses_recombined_draws_has_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drawn anew."""
    bench = Bench(task("x * 2", "[torch.ones(4).roll(1) * torch.rand(())]"), "cpu")
    monkeypatch.setattr(benches.Stock, "_accepts", lambda self, seed: False)
    drawn = [leaves[0] for leaves in itertools.islice(bench.draws(3, 0.0), 4)]
    assert len({tuple(one.tolist()) for one in drawn}) == 4
    assert all(bool((one == one[0]).all()) for one in drawn)


def test_inputs_that_must_stay_as_they_are_stay_so_in_recombined_draws() -> None:
    """A constant without which the reference leaves its domain is in every draw what it was."""
    bench = Bench(task("torch.sqrt(x * 0 + y)", "[torch.randn(64), torch.zeros(64)]", args="x, y"), "cpu")
    given = [leaves[1] for leaves in itertools.islice(bench.draws(3, 0.0), 3)]
    assert {1} == bench.timed.instance.kept
    assert all(torch.equal(one, torch.zeros(64)) for one in given)


def test_a_slow_reference_is_called_twice_before_its_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first call is the known one, and the second says how long a call takes; a quick one is measured again."""
    source = "self.register_buffer('calls', torch.zeros((), dtype=torch.int64), persistent=False)"
    made = task("x * 2 + 0 * self.calls.add_(1)", "[torch.rand(4, 4)]", init=source)
    quick = Bench(made, "cpu").timed.instance.model.calls
    monkeypatch.setattr(benches, "SLOW_S", 0.0)
    bench = Bench(made, "cpu")
    slow = bench.timed.instance.model.calls
    assert (2, True) == (int(slow), int(quick) > 2)
    assert bench.eager_us > 0
    truth = bench.timed.checker.truth(bench.timed.as_given, bench.known_call(), bench.timed.instance.first_state)
    assert torch.allclose(2 * bench.known_call()[0], truth.eager[0])


def test_a_huge_case_takes_its_changes_of_value_in_one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few variants, among them every sign and offset, and the proof and the admission say so."""
    monkeypatch.setattr(instances, "HUGE", 0)
    bench = Bench(task("torch.relu(x)", "[torch.rand(64, 64)]"), "cpu")
    names = [variant.name for variant in bench.timed.offered]
    kinds = ["", ", small", ", plain", ", none larger", ", scaled down"]
    assert ["as given", "sparser", *(f"mixed rows{kind}" for kind in kinds)] == names
    assert any(note.startswith("huge calls") for note in bench.admit().notes)


def test_what_a_first_look_took_is_no_longer_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing 3 GiB of inputs twice took longer than the budget, of which 24 s were said to be left."""
    heard: list[float] = []
    ticks = itertools.count(0, 5 * 10**9)
    monkeypatch.setattr(benches.measure, "clock", lambda pid=0: next(ticks))
    for name in ("look", "look_again"):
        monkeypatch.setattr(benches.foresight, name, lambda instance, left, say: heard.append(left))
    Bench(task("x * 2", "[torch.rand(4, 8)]"), "cpu", left=1000.0)
    assert heard[1] < heard[0] <= 995.0


@pytest.mark.parametrize("wrong", [0, 1, 2, 13, 24])
def test_every_call_of_a_variant_is_checked_though_many_come_in_one_window(wrong: int) -> None:
    """The 24 draws of outliers: none in more than IN_A_WINDOW at once, the first alone, and none goes unread."""
    bench = Bench(task("x * 2", "[torch.randn(8, 64)]"), "cpu")
    outliers = next(v for v in bench.timed.offered if v.name == "outliers")
    assert outliers.draws == 24
    program, checks = Obedient(wrong), checks_of(bench)
    with pytest.raises(Wrong) if wrong else contextlib.nullcontext():
        checks._variants(program, bench.timed, [outliers])  # type: ignore[arg-type]
    assert program.windows[0] == 1 and max(program.windows) <= windows.IN_A_WINDOW
    assert wrong or sum(program.windows) == 24 and len(program.windows) < 13
    assert sum(result.calls for result in checks.results) == sum(program.windows)


def test_windows_of_several_calls_are_not_the_same_for_every_seed() -> None:
    """A program that knew their sizes would know them from others."""
    sizes = {tuple(map(len, windows.in_windows(24, random.Random(seed)))) for seed in range(20)}
    assert len(sizes) > 10 and all(sum(found) == 24 for found in sizes)


def test_draws_recombined_many_at_a_time_are_as_new_as_one_at_a_time() -> None:
    """No row in proportion to one seen before; bounds and what is in order keep their order; integers stay theirs."""
    dice = torch.Generator().manual_seed(1)
    made = recombined.Recombiner(torch.device("cpu"))
    sorted_ = torch.rand(64).sort().values
    stock = [
        [torch.rand(512, 256) + 1, torch.rand(64, 16) + 1, torch.rand(64, 4) + torch.tensor([1, 1, 2, 2]), sorted_,
         torch.randint(1000, (256, 512)), torch.randint(9, (40,)), torch.full((3,), float(number))]
        for number in range(3)
    ]  # fmt: skip
    draws = list(made.batch(stock, {6}, 7, dice))
    assert len(draws) == 7
    for number, (large, rows, bounds, edges, many, few, kept) in enumerate(draws):
        assert [t.shape for t in (large, many)] == [(512, 256), (256, 512)]
        seen = [*(before[0] for before in stock), *(before[0] for before in draws[:number])]
        for old in seen:
            ratios = large / old
            assert float((ratios.amax(-1) - ratios.amin(-1)).min()) > 1e-3
        moved = edges / sorted_
        assert (
            bool((edges[1:] >= edges[:-1]).all()) and 0 < float((moved - 1).abs().min()) and float(moved.std()) < 1e-5
        )
        assert bool((bounds[:, 2:] > bounds[:, :2]).all())
        elsewhere = torch.stack([rows / one[1] for one in stock])
        elsewhere = elsewhere.gather(0, (elsewhere - 1).abs().argmin(0, keepdim=True))
        assert float(((elsewhere - elsewhere.median()).abs() < 1e-5).float().mean()) < 0.1  # one for each
        assert 0 <= int(many.min()) and int(many.max()) < 1000 and 0 <= int(few.min()) and int(few.max()) < 9
        assert not {row.numpy().tobytes() for row in many} & {row.numpy().tobytes() for one in stock for row in one[4]}
        assert float(kept.min()) == float(kept.max()) in (0.0, 1.0, 2.0)
    assert all(not torch.equal(one[0], other[0]) for one, other in itertools.combinations(draws, 2))


def test_real_draws_end_where_they_have_become_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are planned by what the first ones took; from then on they are made of other draws."""
    bench = Bench(task("x * 2", "[torch.rand(400, 400)]"), "cpu")
    real, drawn, seconds = bench.timed.instance.draw, list[int](), [0.0]
    monkeypatch.setattr(bench.timed.instance, "draw", lambda variant, seed: drawn.append(seed) or real(variant, seed))
    monkeypatch.setattr(benches.measure, "timed", lambda action: (action(), seconds[0]))
    draws = bench.draws(7, 1.0)
    assert len([next(draws) for _ in range(3)]) == len(drawn) == 3
    seconds[0] = 1.01 * benches.DEAR_DRAWS
    values = [next(draws)[0] for _ in range(6)]
    assert len(drawn) == 4 + COUNT
    assert all(not torch.equal(one, other) for one, other in itertools.combinations(values, 2))


def test_an_incoming_gradient_that_was_written_over_is_found() -> None:
    """Autograd hands the same tensor to whoever else asked for it."""
    given = calls.Given([torch.zeros(2)])
    given.incoming = [torch.tensor([1.0, 2.0])]
    now = torch.tensor([1.0, 2.0])
    buffers = cast(Any, SimpleNamespace(plan=SimpleNamespace(seeds=(0,)), seeds=[(now,)]))
    assert [] == agreement.incoming_changed(buffers, {0: given})
    now[1] = 0.0
    assert [0] == agreement.incoming_changed(buffers, {0: given})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 32), (512, 256), (64,), (64, 4)])
def test_recombined_draws_stay_within_bounds(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Probabilities stay below one, which some references insist on; each draw is another one all the same, in numbers
    of its own format: in half precision they had 24 bits once, and every program was said to change them."""
    dice = torch.Generator().manual_seed(3)
    made = recombined.Recombiner(torch.device("cpu"))
    stock = [torch.rand(shape, generator=dice).to(dtype) for _ in range(3)]
    if len(shape) == 1:
        stock = [values.sort().values for values in stock]
    draws = [made.of(stock[0], stock[0], dice) for _ in range(20)]
    draws += [drawn[0] for drawn in made.batch([[values] for values in stock], (), 20, dice)]
    assert {dtype} == {values.dtype for values in draws}
    assert all(0.0 <= float(values.min()) and float(values.max()) <= 1.0 for values in draws)
    shares = [float((values != stock[0]).float().mean()) for values in draws]
    assert sum(shares) > 0.6 * len(shares) and (min(shares) > 0.8 or dtype is not torch.float32)  # steps of up to 0.8 %
    if len(shape) == 1:
        assert all(bool((values.diff() >= 0).all()) for values in draws[:20])


def test_single_numbers_are_recombined_many_at_a_time() -> None:
    """A tensor without axes, whole or not: a token that ends a sequence, a temperature."""
    made = recombined.Recombiner(torch.device("cpu"))
    stock = [[torch.tensor(number), torch.tensor(1.0 + number)] for number in range(3)]
    draws = list(made.batch(stock, (), 5, torch.Generator().manual_seed(4)))
    assert {((), ())} == {(whole.shape, number.shape) for whole, number in draws}
    assert {0, 1, 2} >= {int(whole) for whole, _ in draws} and not {1.0, 2.0, 3.0} & {float(n) for _, n in draws}


def test_recombined_draws_of_what_has_no_bounds_go_beyond_those_of_others() -> None:
    """Normal numbers, the largest of which is moved as others are; zeros of a ReLU stay zeros."""
    dice = torch.Generator().manual_seed(3)
    made = recombined.Recombiner(torch.device("cpu"))
    values = torch.randn(512, 256)
    assert any(float(made.of(values, values, dice).abs().max()) > float(values.abs().max()) for _ in range(20))
    assert torch.equal(made.of(values.relu(), values.relu(), dice) == 0, values.relu() == 0)


def test_numbers_of_a_wide_range_are_none_that_were_seen_before() -> None:
    """Of hashes every element was one of three: a program that kept an answer for each was seven times as fast."""
    dice, made = torch.Generator().manual_seed(1), recombined.Recombiner(torch.device("cpu"))
    stock = [torch.randint(10**9, (64, 16)) for _ in range(3)]
    seen = {number for values in stock for number in values.flatten().tolist()}
    draws = [made.of(stock[0], stock[1], dice), *(one[0] for one in made.batch([[s] for s in stock], (), 2, dice))]
    for values in draws:
        numbers = set(values.flatten().tolist())
        assert len(numbers & seen) < 8 and 0 <= min(numbers) and max(numbers) < 10**9
    few = torch.randint(100, (64, 16))
    assert set(made.of(few, few, dice).flatten().tolist()) <= set(few.flatten().tolist())
