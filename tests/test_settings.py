# SPDX-License-Identifier: Apache-2.0
"""settings.py: typed variables, defaults, and one clear error for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright import settings
from kernelwright.errors import BadCommand


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    """Nothing needs to be set."""
    known = settings.read({"HOME": "/home/ada"})
    assert Path("/home/ada/.cache/kernelwright") == known.home
    assert (Path("runs"), "cpu", 120.0, 0, ()) == (
        known.runs,
        known.device,
        known.budget_seconds,
        known.seed,
        known.proposers,
    )


def test_every_known_variable_changes_its_setting() -> None:
    """A variable that is listed is also read."""
    changed = {
        "KERNELWRIGHT_HOME": "/h",
        "KERNELWRIGHT_RUNS": "/r",
        "KERNELWRIGHT_DEVICE": "cuda",
        "KERNELWRIGHT_BUDGET": "1.5m",
        "KERNELWRIGHT_SEED": "7",
        "KERNELWRIGHT_PROPOSERS": "templates, compiler",
        "KERNELWRIGHT_LLM_KEY_NAME": "MY_KEY",
        "KERNELWRIGHT_GRID": "0.05",
    }
    assert set(settings.KNOWN) == set(changed)
    plain = settings.read({})
    for name, value in changed.items():
        assert plain != settings.read({name: value}), name
    known = settings.read(changed)
    assert ("cuda:0", 90.0, 7, ("templates", "compiler"), "MY_KEY", 0.05) == (
        known.device,
        known.budget_seconds,
        known.seed,
        known.proposers,
        known.llm_key_name,
        known.grid,
    )


@pytest.mark.parametrize("given", ["", "soon", "0", "-5s", "1e3", "nan", "9999h", 0, -3.0, float("nan"), float("inf")])
def test_a_budget_is_a_length_of_time(given: str | float) -> None:
    """As text and as a number, for both are taken from Python."""
    with pytest.raises(BadCommand, match="not a length of time"):
        settings.seconds(given)
    assert (90.0, 90.0, 3.5) == (settings.seconds("1.5m"), settings.seconds("90"), settings.seconds(3.5))


@pytest.mark.parametrize("given", [-1.0, float("nan"), float("inf"), 65.0])
def test_bits_that_may_be_lost_are_a_number_of_bits(given: float) -> None:
    """Against nan every comparison is false, and whatever is not above the limit would pass."""
    with pytest.raises(BadCommand, match="number of bits"):
        settings.bits(given)
    assert (0.0, 8.0) == (settings.bits(0), settings.bits(8))


@pytest.mark.parametrize("text", ["481", "-1", "green"])
def test_a_grid_in_grams_or_words_is_refused(text: str) -> None:
    """481 g a kWh is 0.481 kg."""
    with pytest.raises(BadCommand, match="kg CO2e per kWh"):
        settings.grid(text)


def test_xdg_cache_home_moves_the_caches() -> None:
    """The usual convention is followed."""
    assert Path("/x/kernelwright") == settings.read({"XDG_CACHE_HOME": "/x", "HOME": "/home/ada"}).home


def test_a_variable_that_is_no_length_of_time_is_named() -> None:
    """A user who gave no budget would look for one on the command line."""
    with pytest.raises(BadCommand, match="KERNELWRIGHT_BUDGET is not a length of time"):
        settings.read({"KERNELWRIGHT_BUDGET": "x"})
    with pytest.raises(BadCommand, match="The budget is not a length of time"):
        settings.seconds("x")


def test_a_misspelt_variable_is_an_error_that_lists_the_known_ones() -> None:
    """Silence would look like obedience."""
    with pytest.raises(BadCommand) as caught:
        settings.read({"KERNELWRIGHT_BUGDET": "2m"})
    assert "KERNELWRIGHT_BUGDET" == caught.value.got
    assert "KERNELWRIGHT_BUDGET" in caught.value.expected


@pytest.mark.parametrize(("text", "expected"), [("90", 90.0), ("90s", 90.0), ("2m", 120.0), ("1h", 3600.0)])
def test_lengths_of_time_are_read_with_their_unit(text: str, expected: float) -> None:
    """A number alone is seconds."""
    assert expected == settings.seconds(text)


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "2 minutes", "m", "1d"])
def test_nonsense_lengths_of_time_are_refused(text: str) -> None:
    """Zero is nonsense too: it would mean a run that can find nothing."""
    with pytest.raises(BadCommand):
        settings.seconds(text)


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:x", "cpu:0", "tpu", ""])
def test_unknown_devices_are_refused(text: str) -> None:
    """Only cpu and cuda:N exist here."""
    with pytest.raises(BadCommand):
        settings.device(text)


def test_a_bad_seed_names_its_variable() -> None:
    """The message says which variable to mend."""
    with pytest.raises(BadCommand, match="KERNELWRIGHT_SEED"):
        settings.read({"KERNELWRIGHT_SEED": "one"})


def test_a_key_is_read_when_asked_for_and_is_never_in_the_settings() -> None:
    """The settings can be logged: they hold the name of the variable, not the key."""
    env = {"KERNELWRIGHT_LLM_KEY_NAME": "MY_KEY", "MY_KEY": "canary-1234"}
    assert "canary-1234" not in repr(settings.read(env))
    assert "canary-1234" == settings.secret("MY_KEY", env)
    with pytest.raises(BadCommand, match="MY_OTHER_KEY"):
        settings.secret("MY_OTHER_KEY", env)


def test_the_first_variable_that_is_set_is_named_and_values_are_redacted() -> None:
    """Names travel, values do not; values too short to be secrets stay."""
    env = {"B": "value-of-b", "C": "value-of-c", "D": "abc"}
    assert ("B", "") == (settings.first_set(("A", "B", "C"), env), settings.first_set(("A",), env))
    assert "key [B], abc" == settings.redacted("key value-of-b, abc", ("A", "B", "D"), env)
