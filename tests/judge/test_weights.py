# SPDX-License-Identifier: Apache-2.0
"""Weights are given to a module when it has others, and only then."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import weights


class Counted(torch.nn.Linear):
    """Counts how often weights are copied in."""

    given = 0

    def load_state_dict(self, *args: object, **kwargs: object) -> object:
        """As torch's, counted."""
        self.given += 1
        return super().load_state_dict(*args, **kwargs)


@pytest.fixture
def model() -> Counted:
    torch.manual_seed(0)
    return Counted(3, 2)


def other(model: Counted) -> weights.State:
    return [(name, value + 1) for name, value in weights.read(model)]


def test_the_same_weights_are_copied_once_and_others_each_time(model: Counted) -> None:
    giver, first, second = weights.Giver(keeps=True), weights.read(model), other(model)
    for state in (first, first, second, second, first):
        giver.give(model, state)
        assert weights.still(model, state)
    assert model.given == 3


def test_weights_that_were_written_to_or_replaced_are_given_again(model: Counted) -> None:
    giver, first = weights.Giver(keeps=True), weights.read(model)
    giver.give(model, first)
    with torch.no_grad():
        model.weight.mul_(2)
    giver.give(model, first)
    assert weights.still(model, first)
    model.bias = torch.nn.Parameter(torch.full((2,), 7.0))
    giver.give(model, first)
    assert weights.still(model, first) and model.given == 3


def test_a_module_whose_calls_change_its_weights_gets_them_every_time(model: Counted) -> None:
    giver, first = weights.Giver(), weights.read(model)
    for _ in range(3):
        giver.give(model, first)
    assert model.given == 3


def test_weights_for_one_call_are_not_taken_for_the_lasting_ones(model: Counted) -> None:
    giver, first, passing = weights.Giver(keeps=True), weights.read(model), other(model)
    giver.give(model, first)
    giver.give(model, passing, lasting=False)
    giver.give(model, first)
    assert weights.still(model, first)


def test_still_sees_one_changed_element_and_forgives_equal_nan() -> None:
    model = torch.nn.BatchNorm1d(4)
    model.running_mean[1] = float("nan")
    state = weights.read(model)
    assert weights.still(model, state)
    model.running_var[2] += 1e-7
    assert not weights.still(model, state)


def test_weights_that_share_memory_are_named_once(model: Counted) -> None:
    """What moves each of them must not move one twice."""
    both = torch.nn.Sequential(model, torch.nn.Linear(3, 2))
    both[1].weight = model.weight
    found = weights.once(both)
    assert 3 == len(found) and 6 == sum(value.numel() == 6 for value in found) * 6
    with torch.no_grad():
        found[0].zero_()
    assert not model.weight.any() and not both[1].weight.any()


def changed(before: weights.State, after: weights.State) -> list[str]:
    return [name for (name, old), (_, new) in zip(before, after, strict=True) if not torch.equal(old, new)]


def test_weights_that_differ_in_one_tensor_and_then_in_single_elements(model: Counted) -> None:
    """Each alone is another than in the call before; what hangs together changes together."""
    first, shared = weights.read(model), torch.randn(2, 3)
    first = [*first, ("tied", first[0][1].clone()), ("count", torch.tensor(3))]
    fresh = [("weight", shared), ("bias", torch.randn(2)), ("tied", shared), ("count", torch.tensor(3))]
    alone, other, *touched, moved, turned = (state for _, state in weights.partly(first, fresh, random.Random(1)))
    each = [changed(first, alone), changed(alone, other)]
    assert [["bias"], ["weight", "tied"]] == sorted(each)
    assert len(touched) == 2
    for state in touched:
        assert ["weight", "bias", "tied"] == changed(other, state)
        assert [1, 1, 1, 0] == [int((a != b).sum()) for (_, a), (_, b) in zip(other, state, strict=True)]
        assert torch.equal(state[0][1], state[2][1])
    assert {"weight", "tied"} <= set(changed(touched[-1], moved)) <= {"weight", "bias", "tied"}
    assert all(torch.allclose(a, b) for (_, a), (_, b) in zip(touched[-1], moved, strict=True))
    assert torch.equal(moved[0][1], moved[2][1])
    assert {"weight", "bias", "tied"} == set(changed(moved, turned)) and torch.equal(turned[0][1], turned[2][1])
    for (_, before), (_, after) in zip(moved[:2], turned[:2], strict=True):
        assert int((before != after).sum()) == 2 and torch.equal(before.sort(-1).values, after.sort(-1).values)


def test_tables_in_order_stay_so_unless_they_are_trained() -> None:
    """Edges of buckets rise: a program that searches in them is no worse than one that compares with all of them."""
    model = torch.nn.ParameterDict({"trained": torch.nn.Parameter(torch.linspace(-1, 1, 64))})
    model.register_buffer("edges", torch.linspace(-1, 1, 64))
    model.register_buffer("falling", torch.linspace(0.9, 0.1, 64))
    model.register_buffer("loose", torch.tensor([0.5, 0.25, 0.75, 0.125]))
    first = weights.read(model)
    fresh = weights.fresh(model, first, dict(first), 5)
    for state in (fresh, *(state for _, state in weights.partly(first, fresh, random.Random(1)))):
        now = {name: value.diff() for name, value in state}
        assert (now["edges"] >= 0).all() and (now["falling"] <= 0).all()
        assert (now["loose"] < 0).any() and (now["loose"] > 0).any()
    assert (dict(fresh)["trained"].diff() < 0).any()
    assert not any(torch.equal(old, new) for (_, old), (_, new) in zip(first, fresh, strict=True))


RANDOM: dict[str, Callable[[], torch.Tensor]] = {
    "codes": lambda: torch.randint(-127, 128, (8, 8), dtype=torch.int8),
    "words": lambda: torch.randint(-(2**31), 2**31, (8, 8), dtype=torch.int32),
    "flags": lambda: torch.rand(8, 8) < 0.5,
    "order": lambda: torch.randperm(64),
    "phases": lambda: torch.polar(torch.ones(16), torch.rand(16)),
}


def test_what_a_constructor_draws_is_drawn_anew_whatever_its_type() -> None:
    """Whole numbers all at once, never element by element: a permutation stays one."""
    model = torch.nn.Module()
    for name, draw in RANDOM.items():
        model.register_buffer(name, draw())
    model.register_buffer("places", torch.arange(9))
    first, redrawn = weights.read(model), {name: draw() for name, draw in RANDOM.items()}
    fresh = weights.fresh(model, first, redrawn, 5)
    assert [*RANDOM] == changed(first, fresh)
    assert all(torch.equal(value, redrawn[name]) for name, value in fresh if name in RANDOM)
    whole = {"words", "flags", "order"}
    mixed = weights.recombined(
        first, fresh, lambda new, old: torch.where(torch.rand(new.shape) < 0.5, new, old), renew=True
    )
    for state in (mixed, *(state for _, state in weights.partly(first, fresh, random.Random(1)))):
        assert whole & {*changed(first, state)} in (whole, set())
        assert torch.equal(dict(state)["order"].sort().values, torch.arange(64))
    last = list(weights.partly(first, fresh, random.Random(1)))[-1][1]
    assert "phases" in changed(fresh, last), "complex weights move a little, too"


def test_numbers_that_a_reference_cannot_take_stay() -> None:
    """Flags that say how many columns there are: with others the result has another shape."""
    for formula, taken in (("x[:, self.m]", False), ("x * self.m", True)):
        made = instance(formula, "[torch.randn(3, 64)]", init="self.register_buffer('m', torch.rand(64) < 0.5)")
        assert bool(changed(made.first_state, made.draw_state(7))) is taken


def test_dear_weights_change_in_two_steps_and_structure_in_none(model: Counted) -> None:
    """Of two tensors one alone is new in the first."""
    first, fresh = weights.read(model), other(model)
    assert [1, 2] == [
        len(changed(first, state)) for _, state in weights.partly(first, fresh, random.Random(2), few=True)
    ]
    assert [] == list(weights.partly(first, first, random.Random(2)))


def test_a_double_shares_nothing_with_the_module_and_is_made_without_a_copy_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ties, frozen weights, buffers, and parameters that were doubles before."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    model[2].to(torch.float64)
    plain = copy.deepcopy(model).to(torch.float64)

    def never(self: object, memo: object) -> None:
        raise AssertionError("copied as it is")

    monkeypatch.setattr(torch.nn.Parameter, "__deepcopy__", never)
    made = weights.doubled(model)
    monkeypatch.undo()
    assert made[1].weight is made[0].weight and not made[0].bias.requires_grad and made[1].bias.requires_grad
    for (name, one), (other, two) in zip(made.state_dict().items(), plain.state_dict().items(), strict=True):
        assert name == other and one.dtype == two.dtype and torch.equal(one, two)
    before = weights.read(model)
    for value in made.state_dict().values():
        value.add_(1)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before)
    assert model[0].weight.dtype == torch.float32


class Made(torch.nn.Module):
    """Weights as constructors make them, a frozen table and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.ones = torch.nn.Parameter(torch.ones(64))
        self.eye = torch.nn.Parameter(torch.eye(16))
        self.one = torch.nn.Parameter(torch.tensor(2.0))
        self.table = torch.nn.Parameter(torch.eye(8), requires_grad=False)
        self.register_buffer("var", torch.ones(16))
        self.tied = self.eye


def fresh(how: str) -> dict[str, torch.Tensor]:
    model = Made()
    first = weights.read(model)
    return dict(weights.fresh(model, first, dict(first), 5, how))


def test_what_is_trained_moves_as_training_moves_it() -> None:
    """Ones get both signs, an identity is none any more, a single number has the other sign; the rest is structure."""
    plain, moved = fresh(""), fresh(weights.SIGNS)
    assert bool((plain["ones"] > 0).all()) and torch.equal(plain["eye"], torch.eye(16))
    assert 10 < int((moved["ones"] < 0).sum()) < 54
    assert moved["one"] < 0 and bool((moved["eye"] != 0).all()) and moved["tied"] is moved["eye"]
    for name in ("table", "var"):
        assert torch.equal(plain[name], moved[name])


def test_signs_stay_where_a_reference_wants_them() -> None:
    """Positive numbers become larger, and zeros some numbers."""
    moved = fresh(weights.SIZES)
    assert bool(((moved["ones"] >= 0.5) & (moved["ones"] <= 6)).all()) and 8 <= moved["one"] <= 48
    assert bool((moved["eye"] >= 0).all()) and float((moved["eye"] > 0).float().mean()) > 0.95
    value = torch.tensor([-1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    made = weights.moved(value, torch.Generator().manual_seed(1), weights.SIZES)
    assert made[0] < 0 < made[2] and bool((made[3:] < 0).any()) and bool((made[3:] > 0).any())


def test_few_elements_become_far_larger() -> None:
    """One at least, whatever keeps its sign; a clamp or a threshold far beyond what a constructor makes is met."""
    moved = fresh(weights.OUTLYING)
    far = moved["ones"] >= 8.0
    assert 1 <= int(far.sum()) <= 20 and bool((moved["ones"] > 0).all()) and float(moved["ones"].max()) < 1600
    assert 8 <= moved["one"] < 1100 * 3 and torch.equal(moved["var"], fresh("")["var"])
    value = torch.cat([torch.randn(4096), torch.zeros(4096)])
    made = weights.moved(value, torch.Generator().manual_seed(1), weights.OUTLYING)
    times = (made / value)[:4096]
    assert 20 < int((times > 15).sum()) < 120 and float(times[times > 1.5].min()) > 15 and float(times.max()) > 500
    assert bool((made[4096:] != 0).any())


def test_weights_come_with_a_pattern_that_a_few_elements_do_not_have() -> None:
    """Nearly symmetric ones are among them; what is not trained stays in order."""
    made = instance("x @ self.w", "[torch.randn(4, 16)]", init="self.w = nn.Parameter(torch.randn(16, 16))")
    drawn = [dict(made.draw_state(seed, weights.PATTERNED))["w"] for seed in range(60)]
    odd = [int((w != w.T).sum()) for w in drawn]
    assert any(0 < count <= 32 for count in odd) and sum(count > 100 for count in odd) > 20
    assert len({w.numpy().tobytes() for w in drawn}) > 50


def test_masks_and_infinities_are_not_moved() -> None:
    value = torch.tensor([0.0, -torch.inf])
    assert weights.moved(value, torch.Generator(), weights.SIGNS) is value


@pytest.mark.parametrize("how", [weights.SIGNS, weights.SIZES])
def test_large_parameters_are_moved_by_numbers_that_come_again(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Every element of every part, and zeros too; tensors that do not lie in order come out right as well."""
    monkeypatch.setattr(weights, "PERIOD", 7)
    rng = torch.Generator().manual_seed(3)
    value = torch.cat([torch.ones(4, 5), torch.zeros(4, 5)]).t()
    made = weights.moved(value, rng, how)
    assert made.shape == value.shape and bool((made != value).all())
    assert bool((made[value == 1] > 1).all()) if how == weights.SIZES else bool((made < 0).any() and (made > 0).any())
    assert 7 >= len(set(made[value == 0].tolist()))


def test_a_single_exponent_is_far_off_in_every_draw() -> None:
    """Below zero, where bits are lost, and where nothing overflows above; one that joins other numbers, too."""
    forward = "torch.cat([x, self.a.expand(4, 1)], 1).softmax(1)"
    made = instance(forward, "[torch.randn(4, 24)]", init="self.a = nn.Parameter(torch.zeros(1))")
    for seed in range(5):
        low, high = (float(dict(made.draw_state(seed, how))["a"]) for how in (weights.EXPONENTS, weights.FURTHER))
        assert -21 < low < -9 and 89 < high < 201


def test_equal_matrices_under_the_largest_exponent() -> None:
    """A temperature far above zero, where it else is far below, and matrices of one shape that are the same."""
    init = "self.q, self.k, self.t = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.tensor(2.66))"
    made = instance("torch.softmax(self.q(x) @ self.k(x).mT * self.t.exp(), -1)", "[torch.randn(4, 8)]", init=init)
    state = dict(made.draw_state(3, weights.ALIKE))
    assert torch.equal(state["q.weight"], state["k.weight"]) and not torch.equal(state["q.bias"], state["k.bias"])
    assert float(state["t"]) >= 10.0 > 0.0 > float(dict(made.draw_state(3, weights.FURTHER))["t"])


@pytest.mark.parametrize(("taken", "bare"), [("torch.exp(self.a)", True), ("F.softplus(self.a)", False)])
def test_an_exponent_is_not_moved_to_where_its_exponential_is_infinite(taken: str, bare: bool) -> None:
    """Few elements become 16 to 1024 times as large, which no decay survives; a softplus does."""
    init = "self.a = nn.Parameter(torch.linspace(1.0, 3.0, 64))\nself.w = nn.Parameter(torch.linspace(1.0, 3.0, 64))"
    made = instance(f"x * torch.exp(-{taken}) * self.w", "[torch.randn(4, 64)]", init=init)
    state = dict(made.draw_state(7, weights.OUTLYING))
    assert (float(state["a"].abs().max()) <= 40) is bare and float(state["w"].abs().max()) > 40
    assert float(state["a"].abs().max()) > 10


def test_codes_become_the_largest_as_a_whole() -> None:
    """Of bytes most rows; what is trained, and words, stay what they are otherwise."""
    model = torch.nn.Module()
    model.register_buffer("codes", torch.randint(-127, 128, (24, 64), dtype=torch.int8))
    model.register_buffer("words", torch.randint(-(2**31), 2**31, (24, 4), dtype=torch.int32))
    first = weights.read(model)
    made = dict(weights.fresh(model, first, dict(first), 5, weights.CODES))
    assert torch.equal(made["words"], dict(first)["words"])
    most = dict(first)["codes"].int().abs().max()
    assert 8 <= int((made["codes"].int().abs() == most).all(-1).sum()) and len(made["codes"].unique()) > 2


@pytest.mark.parametrize("forward", ["x * F.softplus(self.a)", "x * torch.exp(-self.a.double()).float()[None]"])
def test_weights_of_which_an_exponential_is_taken_come_far_from_zero(forward: str) -> None:
    """And no others: those that are factors stay."""
    made = instance(
        f"({forward}) @ self.w",
        "[torch.randn(4, 24)]",
        init="self.a = nn.Parameter(torch.zeros(24))\nself.w = nn.Parameter(torch.ones(24, 2))",
    )
    variant = next(v for v in made.variants(3) if v.moved == weights.EXPONENTS)
    state = dict(made.draw_state(7, variant.moved))
    assert ((state["a"] > -17) & (state["a"] < -5)).sum() >= 3 and (state["a"] > 5).sum() >= 3
    assert not bool((state["w"] < -5).any())
    large = dict(made.draw_state(7, weights.FURTHER))["a"].abs().max()
    assert bool(large > 89) is ("softplus" in forward)
    plain = instance("x @ self.w", "[torch.randn(4, 24)]", init="self.w = nn.Parameter(torch.ones(24, 3))")
    assert all(v.moved != weights.EXPONENTS for v in plain.offered(3))


def test_complex_weights_stay_complex_in_double_precision() -> None:
    """Module.to(torch.float64) leaves their real parts: honest filters were refused by five bits."""
    model = torch.nn.Module()
    model.gain = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64))
    model.register_buffer("filter", torch.randn(5, dtype=torch.complex64))
    model.register_buffer("scale", torch.randn(5, dtype=torch.float16))
    model.register_buffer("order", torch.arange(5))
    made = weights.doubled(model)
    for name, dtype in (("gain", torch.complex128), ("filter", torch.complex128), ("scale", torch.float64)):
        assert getattr(made, name).dtype is dtype
        assert torch.equal(getattr(made, name).to(getattr(model, name).dtype), getattr(model, name))
    assert made.order.dtype is torch.int64
    assert isinstance(made.gain, torch.nn.Parameter)


@pytest.mark.parametrize(("how", "axis"), [*zip(weights.NEIGHBOURS, (0, -1, 0, -1), strict=True)])
def test_rows_come_near_one_another_and_as_large_blocks(how: str, axis: int) -> None:
    """Or columns. Vectors stay, single rows, and what has few bits."""
    value = torch.randn(96, 80, dtype=torch.float64)
    made = weights.moved(value, torch.Generator().manual_seed(1), how)
    assert made.is_contiguous() and made.shape == value.shape
    rows, was = made.movedim(axis, 0), value.movedim(axis, 0)
    if how in (weights.NEAR_ROWS, weights.NEAR_COLUMNS):
        apart = rows - weights.APART * was
        assert torch.allclose(apart, apart[:1].expand_as(apart)) and not torch.equal(rows[0], rows[1])
        assert any(torch.allclose(apart[0], one) for one in was)
    else:
        larger = [int(at) for at in torch.nonzero((rows == was * weights.LARGER).all(-1)).flatten()]
        assert larger == list(range(larger[0], larger[0] + weights.BLOCK))
        assert torch.equal(rows[[at for at in range(len(rows)) if at not in larger]].sum(),
                           was[[at for at in range(len(rows)) if at not in larger]].sum())  # fmt: skip
    for same in (torch.randn(9), torch.randn(1, 1), torch.zeros(0, 4), torch.randn(4, 0)):
        assert torch.equal(weights.moved(same, torch.Generator().manual_seed(1), how), same)
    half = torch.randn(9, 9).half()
    large = how in (weights.LARGE_ROWS, weights.LARGE_COLUMNS)
    assert torch.equal(weights.moved(half, torch.Generator().manual_seed(1), how), half) is not large


def test_of_several_matrices_any_axis_has_large_rows_and_a_codebook_in_a_buffer_too() -> None:
    """A buffer that each construction draws; a table that is always the same stays."""
    value, axes = torch.randn(4, 64, 6), set()
    for seed in range(16):
        made = weights.moved(value, torch.Generator().manual_seed(seed), weights.LARGE_ROWS)
        axes |= {
            axis for axis in range(3) if 0 < len({*torch.nonzero(made != value)[:, axis].tolist()}) < value.shape[axis]
        }
    assert axes == {0, 1}
    model = torch.nn.Module()
    for name in ("drawn", "table"):
        model.register_buffer(name, torch.ones(64, 8))
    first = [("drawn", torch.randn(64, 8)), ("table", torch.ones(64, 8))]
    redrawn = {"drawn": torch.randn(64, 8), "table": torch.ones(64, 8)}
    plain, large = (dict(weights.fresh(model, first, redrawn, 3, how)) for how in ("", weights.LARGE_ROWS))
    assert torch.equal(plain["table"], large["table"]) and not torch.equal(plain["drawn"], large["drawn"])
