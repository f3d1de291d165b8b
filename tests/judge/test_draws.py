# SPDX-License-Identifier: Apache-2.0
"""Random numbers over several calls and processes: whose are new, and whose were made before."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from plain_tasks import instance

from kernelwright.judge import distribution
from kernelwright.judge.draws import SHAKEN, Draws, noise, run, unlike_in_double
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

X = torch.linspace(0.5, 2.0, 64 * 128).reshape(64, 128)
ELSEWHERE = "the random numbers of its first call are those of another process, which was seeded otherwise"


def dropped(seed: int) -> torch.Tensor:
    """One call of a dropout."""
    torch.manual_seed(seed)
    return F.dropout(X, 0.5, training=True)


def runs(seed: int) -> list[torch.Tensor]:
    """What the reference answers to the same call, again and again."""
    return [dropped(1000 * seed + number) for number in range(distribution.RUNS + distribution.HELD_OUT)]


def test_the_first_call_of_a_second_process_draws_other_numbers() -> None:
    """What a constructor made is there again in the next process, which has other seeds by then."""
    draws = Draws()
    draws.another_process()
    assert ["", ""] == [draws.told(0, dropped(seed), runs(seed)) for seed in (1, 2)]
    draws.another_process()
    assert ELSEWHERE == draws.told(0, dropped(1), runs(3))


def test_an_honest_second_process_passes_and_so_does_another_program() -> None:
    """New numbers are new; and what one program drew first is not held against the next."""
    draws = Draws()
    for seed in (1, 2):
        draws.another_process()
        assert "" == draws.told(0, dropped(seed), runs(seed))
    draws.forget()
    draws.another_process()
    assert "" == draws.told(0, dropped(1), runs(4))


def test_what_the_reference_draws_seldom_may_be_drawn_where_no_run_has_it() -> None:
    """A class of 0.005 is in no run of 36 five times in six; one that the reference never draws is wrong as ever."""
    chances = "torch.tensor([[0.995, 0.005, 0.0]])"
    made = instance("torch.multinomial(x, 1).float()", f"[{chances}]", contract=Contract(random=True))
    leaves = [torch.tensor([[0.995, 0.005, 0.0]])]
    again, usual = functools.partial(run, made, leaves, None, 5), torch.zeros(1, 1)
    said = {}
    for drawn in (0.0, 1e-6, 1.0, 2.0):
        draws = Draws()
        said[drawn] = [draws.usual(0, usual + drawn, usual, again) for _ in range(9)]
    assert [drawn == 1.0 for drawn in said] == [
        float(found[0][0]) == 0.0 and drawn > 0.1 for drawn, found in said.items()
    ]
    assert not any(words for found in said.values() for _, words in found[:8])
    assert "seldom does, and the like in 9 of 9 calls" in said[1.0][-1][1] and not said[2.0][-1][1]


def test_a_checker_takes_it_for_usual_and_nothing_else() -> None:
    made = instance("torch.multinomial(x, 1)", "[torch.tensor([[0.996, 0.004, 0.0]])]", contract=Contract(random=True))
    leaves, given = [torch.tensor([[0.996, 0.004, 0.0]])], Variant(name="as given", required=True)
    answers = [torch.tensor([[number]]) for number in range(3)]
    found = {tuple(Checker(made, seed=k).check(given, leaves, None, [one]).passed for one in answers) for k in range(6)}
    assert found <= {(True, True, False), (True, True, True)}, "the latter where one of the first runs has drawn it"
    assert (True, True, False) in found


def _last_larger(value: torch.Tensor) -> torch.Tensor:
    value[-1, -2:] *= 1000
    return value


def _last_kept(value: torch.Tensor) -> torch.Tensor:
    value[-1, -2:] = X[-1, -2:]
    return value


@pytest.mark.parametrize(("other", "refused"), [(lambda v: v, False), (_last_larger, True), (_last_kept, True)])
def test_one_element_of_thousands_that_is_like_in_no_run_shows_over_calls(
    other: Callable[[torch.Tensor], torch.Tensor], refused: bool
) -> None:
    """Two numbers a thousand times as large where they are not dropped, and two that are neither dropped nor scaled."""
    draws = Draws()
    said = [draws.told(0, other(dropped(500 + seed)), runs(seed)) for seed in range(40)]
    assert refused is any("elements are like in no run of the reference" in words for words in said)
    assert refused or not any(said)


ALIKE = "F.dropout((x - x.mean(0)) * (x.var(0, unbiased=False) + 1e-5).rsqrt(), 0.5, True)"


def _in_float64(x: torch.Tensor, rate: float) -> torch.Tensor:
    wide = x.double()
    normed = (wide - wide.mean(0)) * (wide.var(0, unbiased=False) + 1e-5).rsqrt()
    return F.dropout(normed.float(), rate, True)


def test_a_norm_of_numbers_nearly_alike_is_each_program_s_own_rounding() -> None:
    """Half of the columns vary by a rounding alone, so what is kept of them is another number; another rate shows."""
    made = instance(ALIKE, "[torch.randn(32, 64)]", contract=Contract(random=True))
    torch.manual_seed(3)
    x, given = torch.randn(32, 64), Variant(name="as given", required=True)
    x[:, ::2] = 3.0 + (x[:, ::2] > 0) * 2.0**-22
    for rate, passes in ((0.5, True), (0.3, False)):
        checker = Checker(made, seed=3)
        torch.manual_seed(7)
        assert passes is all(checker.check(given, [x], None, [_in_float64(x, rate)], None).passed for _ in range(6))
    column = [run(made, [x], None, 5, number)[0] for number in range(distribution.RUNS + distribution.HELD_OUT)]
    assert distribution.differs(_in_float64(x, 0.5), column), "without that the honest one is refused"


BIASED = "F.dropout(F.relu(F.batch_norm(self.l1(x), None, None, training=True)), 0.3, True) @ self.w"
LAYERS = "self.l1 = nn.Linear(32, 48)\nself.w = nn.Parameter(torch.randn(48, 10))"


def _by_formula(made: Instance, x: torch.Tensor, more: float) -> torch.Tensor:
    """The same, exact where all rows are one; ``more`` is added by chance, of the size of the reference's rounding."""
    h = F.linear(x, made.model.l1.weight, made.model.l1.bias)
    var, mean = torch.var_mean(h, 0, unbiased=False)
    kept = F.relu((h - mean) * torch.rsqrt(var + 1e-5)) * (torch.rand_like(h) >= 0.3) / 0.7
    return (kept @ made.model.w + more * torch.randn(len(x), 10)).detach()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", ["", " + 2.0"])
def test_what_is_random_by_rounding_alone_is_no_distribution(
    bias: str, threads: int, request: pytest.FixtureRequest
) -> None:
    """A batch norm of equal rows is 0 in float64, and an ulp times 1 / sqrt(eps) in torch's float32, of which a dropout
    keeps some, by how many threads share the mean. Whoever has other rounding, or none, passes, with a bias and
    without; who is far off does not."""
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(threads)
    made = instance(BIASED + bias, "[torch.randn(64, 32)]", init=LAYERS, contract=Contract(random=True))
    given, told = Variant(name="as given", required=True), {}
    for rows, more in ((0, 0.0), (0, 1e-5), (0, 2e-3), (64, 0.0), (64, 9.0)):
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(5)) * (torch.arange(64) < rows)[:, None]
        torch.manual_seed(7)
        checker = Checker(made, seed=3)
        told[rows, more] = all(
            checker.check(given, [x], None, [_by_formula(made, x, more) + 2.0 * bool(bias)], None).passed
            for _ in range(6)
        )
    assert told == {(0, 0.0): True, (0, 1e-5): True, (0, 2e-3): False, (64, 0.0): True, (64, 9.0): False}


def test_what_is_drawn_is_never_taken_for_rounding() -> None:
    """However little it is, and however seldom: it is drawn in float64 as well."""
    for forward in ("1 + 1e-6 * torch.rand_like(x)", "1 + 1e-3 * (torch.rand_like(x) < 0.01)", "F.dropout(x, 0.1)"):
        made = instance(forward, "[torch.randn(64, 64)]", contract=Contract(random=True))
        leaves = made.draw(Variant(name="as given", required=True), 3)
        runs = [run(made, leaves, None, 5, number) for number in range(36)]
        alone = unlike_in_double(made, leaves, None, 5, runs)
        assert alone is None or not alone[0].any()


def test_of_many_numbers_some_of_each_dimension_are_looked_at() -> None:
    """No dimension is left with few places while another has many, and each place comes."""
    shape, seen = (32, 64, 56, 28), torch.zeros(64, dtype=torch.bool)
    for _ in range(60):
        cut = distribution._cut(shape)
        sizes = [len(range(size)[part]) for size, part in zip(shape, cut, strict=True)]
        assert distribution.MOST / 4 < math.prod(sizes) <= distribution.MOST and min(sizes) >= 7
        seen[cut[1]] = True
    assert bool(seen.all())
    assert distribution._cut((3, 1 << 20)) != distribution._cut((2, 3)) == (slice(None), slice(None))


def test_what_jumps_is_no_rounding() -> None:
    """A fifth of the numbers is where a whole number is 3: moved by half a rounding it is not. So of fractions."""
    for given in ("torch.randint(0, 5, (64, 64)).float()", "torch.randint(0, 5, (64, 64)) / 7"):
        forward = f"x + torch.where(k == {'3' if 'float' in given else '3 / 7'}, x, 0.0) + 0.1 * torch.randn_like(x)"
        made = instance(forward, f"[torch.randn(64, 64), {given}]", args="x, k", contract=Contract(random=True))
        leaves = made.draw(Variant(name="as given", required=True), 3)
        runs = [run(made, leaves, None, 5, number) for number in range(SHAKEN)]
        assert float(noise(made, leaves, None, 5, runs)[0].max()) < 1e-5
        assert int((leaves[1] == (3 if "float" in given else 3 / 7)).sum()) > 400


def test_what_a_thousandth_of_many_numbers_is_like_in_no_run() -> None:
    """The last ones of a quarter of a million: twice the range outside, or dropped in no call and never scaled."""
    x = torch.linspace(0.5, 2.0, 1 << 16).reshape(256, 256)
    for other in (None, 1000.0, 1.0):
        draws, said = Draws(), list[str]()
        for seed in range(14):
            torch.manual_seed(900 + seed)
            mine, *column = (F.dropout(x, 0.5, True) for _ in range(1 + distribution.RUNS + distribution.HELD_OUT))
            if other is not None:
                mine[-1, -8:] = x[-1, -8:] * other
            said.append(draws.told(0, mine, column))
        assert any(said) is (other is not None)


def test_many_complex_numbers_end_no_look() -> None:
    """They have no order, so nobody asks which lie outside all others."""
    mine, *column = torch.randn(37, 1 << 16, dtype=torch.complex64)
    assert "" == next(distribution._outside(mine, column, None), "")
