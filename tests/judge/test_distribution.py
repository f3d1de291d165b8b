# SPDX-License-Identifier: Apache-2.0
"""Random outputs compared as distributions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from plain_tasks import instance

from kernelwright.judge import distribution, draws, inputs, patterns, repeats
from kernelwright.judge.inputs import Variant, seeded
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

RANDOM = Contract(random=True, training=True)
GIVEN = Variant(name="as given", required=True)


def dropout() -> Checker:
    """A checker of dropout with rate 0.3."""
    return Checker(instance("F.dropout(x, 0.3)", "[torch.randn(32, 64)]", contract=RANDOM), seed=1)


def test_an_atom_rounded_another_way_passes() -> None:
    """Dropout as x * mask / 0.7 differs from x * (1 / 0.7) by one ulp where an element is kept."""
    checker = dropout()
    leaves = checker.instance.draw(GIVEN, 1)
    for number in range(10):
        with seeded(2000 + number):
            got = [leaves[0] * torch.empty_like(leaves[0]).bernoulli_(0.7) / 0.7]
        assert "" == checker.check(GIVEN, leaves, None, got, leaves).detail


def test_other_random_numbers_of_the_same_law_pass() -> None:
    """Twenty calls, each with its own seed."""
    checker = dropout()
    for number in range(20):
        leaves = checker.instance.draw(GIVEN, number)
        with seeded(1000 + number):
            got = checker.instance.eager(leaves, None)
        assert "" == checker.check(GIVEN, leaves, None, got, leaves).detail


def test_another_rate_or_no_dropout_at_all_is_refused() -> None:
    """The law is compared, not only the range."""
    checker = dropout()
    leaves = checker.instance.draw(GIVEN, 0)
    for got in (leaves[0].clone(), torch.nn.functional.dropout(leaves[0], 0.5), torch.zeros(32, 64)):
        assert not checker.check(GIVEN, leaves, None, [got], leaves).passed


def test_the_same_mask_in_every_call_is_refused() -> None:
    """A program that draws once and keeps the mask is not random."""
    checker = dropout()
    details = []
    for number in range(2):
        leaves = checker.instance.draw(GIVEN, number)
        with seeded(5):
            got = checker.instance.eager(leaves, None)
        details.append(checker.check(GIVEN, leaves, None, got, leaves).detail)
    assert ["", "output 0: the same random numbers as in an earlier call"] == details


def half() -> Checker:
    """A checker of dropout with rate 0.5 on 256 rows of 128."""
    return Checker(instance("F.dropout(x, 0.5)", "[torch.randn(256, 128)]", contract=RANDOM), seed=1)


def told(answer: Callable[[torch.Tensor], torch.Tensor]) -> str:
    """What the judge says of one answer to it."""
    checker = half()
    leaves = checker.instance.draw(GIVEN, 1)
    with seeded(77):
        got = [answer(leaves[0])]
    return checker.check(GIVEN, leaves, None, got, leaves).detail


def test_a_mask_that_is_only_turned_is_refused_whatever_the_signs_of_the_inputs() -> None:
    """At a rate of one half, where a kept element says nothing without its sign, and by any number of places."""
    torch.manual_seed(5)
    mask = torch.rand(64, 96) < 0.5
    drawn = []
    for turn in (0, 0, 3001):
        x = torch.randn(64, 96)
        count = distribution.RUNS + distribution.HELD_OUT
        runs = [torch.nn.functional.dropout(x, 0.5) for _ in range(count)]
        drawn.append(distribution.look(x * mask.view(-1).roll(turn).view(mask.shape) * 2.0, runs))
    first, same, turned = drawn
    assert "" == first.detail == same.detail == turned.detail
    assert first.mine is not None and same.mine is not None and turned.mine is not None
    assert repeats.repeated(first.mine, same.mine, same.theirs)
    assert repeats.repeated(first.mine, turned.mine, turned.theirs)
    honest = (*same.theirs(), *turned.theirs())
    assert not any(repeats.repeated(first.mine, one, same.theirs) for one in honest)


def test_three_rows_that_are_never_dropped_are_seen() -> None:
    """As 1 % of the elements they hide in a distribution over all."""
    said = told(lambda x: torch.cat([torch.nn.functional.dropout(x[:-3], 0.5), x[-3:]]))
    assert said.startswith("output 0: a slice of dimension 0 is drawn otherwise")


def test_one_row_that_is_only_scaled_is_seen() -> None:
    """Each of its elements alone is possible."""
    said = told(lambda x: torch.nn.functional.dropout(x, 0.5).index_copy_(0, torch.tensor([7]), x[7:8] * 2))
    assert said.startswith("output 0: a slice of dimension 0 is drawn otherwise")


def test_masks_that_repeat_within_a_call_are_seen() -> None:
    """One mask for all rows, for every 16 rows, for two columns."""
    masks = [
        lambda x: torch.rand(1, 128).expand(256, 128),
        lambda x: torch.rand(16, 128).repeat(16, 1),
        lambda x: torch.rand(256, 64).repeat_interleave(2, -1),
    ]
    said = [told(lambda x, m=mask: x * (m(x) < 0.5) * 2.0) for mask in masks]
    assert all(word.startswith(("output 0: slices of", "output 0: a slice of")) for word in said), said


def test_randomness_that_the_reference_shares_may_be_shared() -> None:
    """Whole channels dropped, one factor for a row, one for everything: ten calls each of the same law pass."""
    laws = [
        ("F.dropout2d(x, 0.4)", "[torch.randn(8, 16, 6, 6)]"),
        ("x * torch.rand(64, 1)", "[torch.randn(64, 64)]"),
        ("x * torch.rand(())", "[torch.randn(64, 64)]"),
    ]
    for forward, drawn in laws:
        checker = Checker(instance(forward, drawn, contract=RANDOM), seed=2)
        for number in range(10):
            leaves = checker.instance.draw(GIVEN, number)
            with seeded(500 + number):
                got = checker.instance.eager(leaves, None)
            assert "" == checker.check(GIVEN, leaves, None, got, leaves).detail


def said(
    answers: Callable[[torch.Tensor], torch.Tensor],
    law: Callable[[torch.Tensor], torch.Tensor],
    shape: tuple[int, ...],
    calls: int,
) -> list[str]:
    """What is said of one program's calls, each on inputs of its own, until it is refused."""
    program, found = draws.Draws(), list[str]()
    for _ in range(calls):
        x = torch.randn(shape)
        runs = [law(x) for _ in range(distribution.RUNS + distribution.HELD_OUT)]
        found.append("" if draws.settled(runs) else program.told(0, answers(x), runs))
        if found[-1]:
            break
    return found


def cropped(x: torch.Tensor) -> torch.Tensor:
    """A part of an image at a place by lot."""
    i, j = torch.randint(0, 9, (2,)).tolist()
    return x[:, i : i + 24, j : j + 24]


def overflown(x: torch.Tensor) -> torch.Tensor:
    """Infinite here and there."""
    return x + torch.exp(43 * x.abs()) * torch.randn_like(x)


SHARED: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "a crop": ((2, 32, 32), cropped),
    "turned or not": ((2, 24, 24), lambda x: x.flip(-1) if torch.rand(()) < 0.5 else x.clone()),
    "a row in ten is dropped": ((8, 4, 24), lambda x: x * (torch.rand(8, 1, 1) < 0.9) / 0.9),
    "a row in fifty is dropped": ((16, 4, 24), lambda x: x * (torch.rand(16, 1, 1) < 0.98) / 0.98),
    "a row in ten is kept": ((64, 16), lambda x: x * (torch.rand(64, 1) < 0.1)),
    "an order of few": ((32,), lambda x: x[torch.randperm(32)]),
    "few elements": ((4, 8), lambda x: torch.nn.functional.dropout(x, 0.5)),
    "rows that belong together": ((16, 32), torch.nn.functional.gumbel_softmax),
    "an overflow by chance": ((16, 64), overflown),
}


@pytest.mark.parametrize("name", SHARED)
def test_chance_that_elements_share_refuses_nobody(name: str) -> None:
    """Thirty calls; each of these laws was refused in most proofs, for what none of 36 runs had shown."""
    shape, law = SHARED[name]
    torch.manual_seed(11)
    assert not any(said(law, law, shape, 30))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("a row in ten is dropped", torch.clone),
        ("a row in ten is dropped", lambda x: x * (torch.rand(8, 1, 1) < 0.6) / 0.6),
        ("a row in fifty is dropped", lambda x: x * (torch.rand(16, 1, 1) < 0.8) / 0.8),
        ("a row in ten is kept", lambda x: x * (torch.rand(64, 1) < 0.3)),
        ("a row in ten is kept", lambda x: x * (torch.rand(64, 16) < 0.1)),
        ("an order of few", lambda x: x[torch.randint(0, 32, (32,))]),
        ("few elements", lambda x: torch.nn.functional.dropout(x, 0.2)),
        ("rows that belong together", lambda x: torch.nn.functional.gumbel_softmax(x, tau=0.5)),
        ("an overflow by chance", lambda x: x + torch.exp(43 * x.abs()) * torch.randn(())),
    ],
)
def test_another_law_shows_where_elements_share_their_chance(
    name: str, wrong: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """After some calls."""
    shape, law = SHARED[name]
    torch.manual_seed(12)
    assert said(wrong, law, shape, 40)[-1]


def test_a_mask_of_two_calls_ago_is_refused() -> None:
    """Two masks used in turn repeat in every second call."""
    checker = dropout()
    details = []
    for number in (0, 1, 0):
        leaves = checker.instance.draw(GIVEN, 30 + len(details))
        with seeded(number):
            got = checker.instance.eager(leaves, None)
        details.append(checker.check(GIVEN, leaves, None, got, leaves).detail)
    assert ["", "", "output 0: the same random numbers as in an earlier call"] == details


@pytest.mark.slow  # 23 s on 2 cores
def test_a_rate_a_little_off_shows_over_several_calls() -> None:
    """0.52 for 0.50: each call alone may pass. The rate itself passes forty calls."""
    for rate, expected in ((0.52, False), (0.5, True)):
        checker = half()
        passed = True
        for number in range(40 if expected else 20):
            leaves = checker.instance.draw(GIVEN, number)
            with seeded(9000 + number):
                got = [leaves[0] * (torch.rand(256, 128) >= rate) * 2.0]
            passed = passed and checker.check(GIVEN, leaves, None, got, leaves).passed
        assert expected == passed, rate


def test_what_another_program_drew_is_forgotten() -> None:
    """The mask of the one before is no repetition."""
    checker = dropout()
    for _ in range(2):
        leaves = checker.instance.draw(GIVEN, 3)
        with seeded(5):
            got = checker.instance.eager(leaves, None)
        assert "" == checker.check(GIVEN, leaves, None, got, leaves).detail
        checker.draws.forget()


def test_the_scatter_of_few_slices_is_a_standard_normal_number() -> None:
    """With two or eight slices, 4000 honest runs: no more than a normal number's tail beyond 3.5."""
    for count in (2, 8):
        slices = torch.rand(4000, count, 64, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
        scatter = patterns._excess(patterns._apart(slices))
        assert abs(float(scatter.mean())) < 0.1
        assert abs(float(scatter.std()) - 1) < 0.1
        assert int((scatter > 3.5).sum()) < 8


@pytest.mark.parametrize("seed", [67, 126, 135, 226, 315, 405])
def test_elements_that_are_the_same_in_every_run_count_for_nothing(seed: int) -> None:
    """One row of 128 is dropped out, the others are zero: of 500 honest calls these six were refused."""
    torch.manual_seed(seed)
    x = torch.zeros(128, 64)
    x[5] = torch.randn(64)
    count = distribution.RUNS + distribution.HELD_OUT + 1
    *runs, mine = [x * (torch.rand_like(x) < 0.5) * 2.0 for _ in range(count)]
    assert "" == distribution.differs(mine, runs)


def test_a_class_that_is_seldom_drawn_is_a_doubt_and_no_certainty() -> None:
    """It alone makes its column vary, so that this run lies six errors off there, whatever was drawn: of twenty calls
    twelve were refused."""
    for seed in range(10, 30):
        torch.manual_seed(seed)
        runs = [F.one_hot(torch.randint(7, (40,)), 8).float() for _ in range(distribution.RUNS + distribution.HELD_OUT)]
        mine = F.one_hot(torch.randint(7, (40,)), 8).float()
        mine[11] = F.one_hot(torch.tensor(7), 8).float()
        look = distribution.look(mine, runs)
        assert "" == look.detail and "drawn otherwise" in look.doubt


@pytest.mark.parametrize("other", [lambda m: m.roll(1, 1), lambda m: m.flip(0, 1)])
def test_a_mask_whose_halves_echo_each_other_is_refused(other: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """No two slices are alike at equal places, and half of the random numbers are missing."""
    checker = half()
    leaves = checker.instance.draw(GIVEN, 1)
    with seeded(77):
        mask = torch.rand(128, 128) < 0.5
    got = [leaves[0] * torch.cat([mask, other(mask)]) * 2.0]
    assert "further on" in checker.check(GIVEN, leaves, None, got, leaves).detail


@pytest.mark.parametrize(("shape", "axis"), [((256, 8), 0), ((3, 256, 8), 1)])
def test_a_turn_for_a_random_order_is_refused_where_values_come_in_order(shape: tuple[int, ...], axis: int) -> None:
    """Number by number it has the right law, and of values in no order all of it."""
    torch.manual_seed(4)
    leaf = torch.randn(shape)
    ordered = inputs.change_leaves([leaf], Variant(name=inputs.ORDERED, required=True, change=inputs.ORDERED), 1)[0]
    assert torch.equal(ordered.flatten(), leaf.flatten().sort().values)
    size = shape[axis]
    runs = [ordered.index_select(axis, torch.randperm(size)) for _ in range(distribution.RUNS + distribution.HELD_OUT)]
    assert "" == distribution.differs(ordered.index_select(axis, torch.rand(size).argsort()), runs)
    turned = ordered.roll(int(torch.randint(size, ())), axis)
    assert f"slices of dimension {axis} go with those further on" in distribution.differs(turned, runs)


def test_as_many_drops_in_every_row_are_refused() -> None:
    """Each element has the right law, and no two calls are alike, but the rows are too even for chance."""
    checker = Checker(instance("F.dropout(x, 0.5)", "[torch.randn(64, 64)]", contract=RANDOM), seed=1)
    leaves = checker.instance.draw(GIVEN, 0)
    mask = torch.rand(64, 64).argsort(1) < 32
    found = checker.check(GIVEN, leaves, None, [leaves[0] * mask * 2.0], leaves)
    assert not found.passed and "slices of dimension 0 are drawn otherwise" in found.detail


def pair(shared: bool, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A mask and what was masked, by it or by another."""
    mask, other = torch.rand(2, *x.shape) < 0.5
    return x * (mask if shared else other) * 2.0, mask


@pytest.mark.parametrize("size", [(8, 16), (64, 128)])
def test_a_mask_must_be_that_of_what_it_masked(size: tuple[int, int]) -> None:
    """Each follows its law alone; half shared shows as well; independent outputs must be independent."""
    torch.manual_seed(3)
    x = torch.randn(size)
    together = list(zip(*(pair(True, x) for _ in range(36)), strict=True))
    apart = list(zip(*(pair(False, x) for _ in range(36)), strict=True))
    for _ in range(20):
        assert "" == distribution.unrelated(pair(True, x), together, ["one", "two"])
        assert "" == distribution.unrelated(pair(False, x), apart, ["one", "two"])
    assert "one and two are not drawn together" in distribution.unrelated(pair(False, x), together, ["one", "two"])
    assert "one and two are not drawn together" in distribution.unrelated(pair(True, x), apart, ["one", "two"])


def test_outputs_that_are_not_random_or_of_other_shapes_have_no_part_in_it() -> None:
    """A sum beside what is random, a row beside a matrix."""
    runs = [(torch.rand(64, 8), torch.ones(64, 8), torch.rand(64)) for _ in range(36)]
    value = torch.rand(64, 8), torch.zeros(64, 8), torch.rand(64)
    assert "" == distribution.unrelated(value, list(zip(*runs, strict=True)), ["one", "two", "three"])


def test_a_checker_asks_whether_outputs_belong_together() -> None:
    """The law of each alone is right."""
    forward = "x * (m := torch.rand_like(x) < 0.5) * 2.0, m"
    checker = Checker(instance(forward, "[torch.randn(32, 64)]", contract=RANDOM), seed=1)
    leaves = checker.instance.draw(GIVEN, 1)
    with seeded(1001):
        assert "" == checker.check(GIVEN, leaves, None, pair(True, leaves[0]), leaves).detail
        detail = checker.check(GIVEN, leaves, None, pair(False, leaves[0]), leaves).detail
    assert "output 0 and output 1 are not drawn together" in detail


def loss(calls: int, rate: float) -> list[str]:
    """What is said of ``calls`` losses of a dropout, one number each, with that rate where 0.3 is asked for."""
    checker = Checker(instance("F.dropout(x, 0.3).square().mean()", "[torch.randn(32, 64)]", contract=RANDOM), seed=1)
    said = []
    for number in range(calls):
        leaves = checker.instance.draw(GIVEN, number)
        with seeded(3000 + number):
            got = [torch.nn.functional.dropout(leaves[0], rate).square().mean()]
        said.append(checker.check(GIVEN, leaves, None, got, leaves).detail)
    return said


def test_one_random_number_a_call_is_an_output_too() -> None:
    """Of so few elements no call tells anything, and the judge once failed on them; honest ones pass in 120 calls."""
    assert not any(loss(120, 0.3))


def test_one_number_of_another_law_shows_over_many_calls() -> None:
    """0.5 for 0.3: always above what the reference gives, but never twice as far."""
    said = loss(120, 0.5)
    assert "" == said[0]
    assert "standard errors off" in said[-1]


def test_what_is_not_random_beside_random_numbers_is_compared_as_ever() -> None:
    """One element of 64 that is 1 % off, or a loss: a law would leave room for two such elements."""
    forward = "F.dropout(x, 0.3), x.square().sum(-1), x.square().mean()"
    checker = Checker(instance(forward, "[torch.randn(64, 32)]", contract=RANDOM), seed=1)
    leaves = checker.instance.draw(GIVEN, 0)
    said = []
    for factors in ((1.0, 1.0), (1.01, 1.0), (1.0, 1.01)):
        rows = leaves[0].double().square().sum(-1).float()
        rows[3] *= factors[0]
        got = [torch.nn.functional.dropout(leaves[0], 0.3), rows, leaves[0].square().sum() / 2048 * factors[1]]
        said.append(checker.check(GIVEN, leaves, None, got, leaves).detail)
    assert "" == said[0]
    assert said[1].startswith("output 1 at (3,): ")
    assert said[2].startswith("output 2 at (): ")


def test_the_distance_of_two_samples_is_the_largest_of_all_places() -> None:
    """Looked for at the places of the smaller one alone; ties and samples of one number among them."""
    dice = torch.Generator().manual_seed(1)
    for first, second in ((1, 40), (40, 1), (7, 7), (30, 200), (200, 30)):
        for _ in range(20):
            one, other = (torch.randint(0, 9, (n,), generator=dice).double() for n in (first, second))
            far = max(abs(float((one <= x).double().mean() - (other <= x).double().mean())) for x in range(9))
            assert distribution.distance(one, other) == pytest.approx(far, abs=1e-12)
