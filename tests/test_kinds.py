# SPDX-License-Identifier: Apache-2.0
"""Arguments of the wrong kind, from Python: every verb names them before anything begins."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelwright
from kernelwright import kinds
from kernelwright.errors import BadCommand, KernelwrightError
from kernelwright.testing import FakeHost, FakeWorker

EXAMPLE = Path(__file__).parents[1] / "examples" / "rmsnorm.py"
SIZES = (torch.randn(4),)
GUIDE = kernelwright.Guide(llm=("local:x",))
RUN, FILE = Path("no-such-run"), Path("no-such-file")
GIVEN: dict[str, dict[str, Any]] = {
    "optimize": {"target": EXAMPLE},
    "resume": {"run": RUN},
    "judge": {"candidate": FILE, "task": EXAMPLE},
    "admit": {"task": EXAMPLE},
    "measure_machine": {},
    "measure_limits": {"task": EXAMPLE},
    "profile": {"candidate": FILE, "task": EXAMPLE},
    "runs": {},
    "report": {"run": RUN},
    "replay": {"run": RUN},
    "compare": {"targets": [EXAMPLE], "guide": GUIDE, "out": FILE},
    "list_recipes": {},
    "list_knowledge": {},
    "export_knowledge": {"path": FILE},
    "import_knowledge": {"path": FILE},
    "learn": {"run": RUN},
    "export_data": {"runs": [RUN], "out": FILE},
    "environment": {"target": EXAMPLE, "services": None},
    "load_task": {"path": EXAMPLE},
    "load_candidate": {"path": FILE, "task": kernelwright.load_task(EXAMPLE)},
    "to_data": {"value": 1},
    "Services": {"device": "cpu"},
}
"""Verb to arguments it takes; no file they name is there, so what gets past them ends with an error of ours too."""
PAIRS = [(verb, name) for verb in GIVEN for name in inspect.signature(getattr(kernelwright, verb)).parameters]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("KERNELWRIGHT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def doubles() -> kernelwright.Services:
    """No judge and no proposers are started."""
    return kernelwright.Services("cpu", worker=FakeWorker(lambda c: 20.0), host=FakeHost({}))


def test_no_verb_is_left_out() -> None:
    """A verb that is added must be added here."""
    verbs = {name for name in kernelwright.__all__ if inspect.isfunction(getattr(kernelwright, name))}
    assert verbs | {"Services"} == set(GIVEN)


@pytest.mark.parametrize(("verb", "name"), PAIRS)
def test_an_argument_of_the_wrong_kind_is_named(verb: str, name: str) -> None:
    """Never a TypeError from deep inside, nor something else than was asked for."""
    call: Callable[..., Any] = getattr(kernelwright, verb)
    given = dict(GIVEN[verb])
    if "services" in inspect.signature(call).parameters:
        given["services"] = doubles()
    with pytest.raises(KernelwrightError) as caught:
        call(**{**given, name: object()})
    assert caught.value.got or caught.value.expected


@pytest.mark.parametrize(
    ("verb", "given", "words"),
    [
        ("optimize", {"out": 3}, r"out of optimize is of the wrong kind.*got: 3 \(int\).*expected: text or a path"),
        ("optimize", {"listen": 3}, "listen of optimize.*a function"),
        ("optimize", {"grid": True}, "grid factor"),
        ("resume", {"run": 3}, "run of resume"),
        ("judge", {"level": "sloppy"}, "no such level.*'sloppy'"),
        ("compare", {"targets": "no-such-file.py"}, "no task.*no-such-file.py does not exist"),
        ("compare", {"recipes": "nonsense"}, "nonsense"),
        ("compare", {"seeds": 0}, "nothing to compare"),
        ("compare", {"guide": None}, "guide of compare.*None.*a Guide"),
        ("environment", {"services": "cpu"}, "services of environment.*a Services"),
        ("environment", {"level": "smoke"}, "no such level"),
        ("environment", {"language": "rust"}, "no such language"),
        ("export_data", {"level": "smoke"}, "no such level"),
        ("list_knowledge", {"most": -1}, "no number of effects"),
        ("load_task", {"device": "gpu"}, "no such kind of device"),
        ("Services", {"device": "gpu"}, "no such kind of device"),
        ("Services", {"worker": 3}, "worker of Services.*a Worker"),
    ],
)
def test_what_was_misread_is_refused_in_words(verb: str, given: dict[str, Any], words: str) -> None:
    """Each of these was read letter by letter, left out in silence, or failed elsewhere."""
    all_given = {**GIVEN[verb], **({"services": doubles()} if verb in ("compare", "environment") else {}), **given}
    with pytest.raises(KernelwrightError, match=f"(?s){words}"):
        getattr(kernelwright, verb)(**all_given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_usd": "a"}, r"max_usd of Guide.*got: 'a'.*expected: a number or None"),
        ({"llm": 3}, "llm of Guide"),
        ({"llm": (3,)}, "llm of Guide"),
        ({"max_candidates": True}, "max_candidates of Guide"),
        ({"price": ("a", "b")}, "price of Guide"),
    ],
)
def test_fields_of_a_guide_of_the_wrong_kind_are_named(given: dict[str, Any], words: str) -> None:
    """When it is made."""
    with pytest.raises(BadCommand, match=f"(?s){words}"):
        kernelwright.Guide(**given)


def test_one_model_is_a_list_of_one() -> None:
    """It was read letter by letter; and a list serves as a tuple does."""
    assert ("openai:x",) == kernelwright.Guide(llm="openai:x").llm  # type: ignore[arg-type]  # what is forgiven
    assert ("A", "B") == kernelwright.Guide(agent_env=["A", "B"]).agent_env  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("name", ["max_usd", "max_minutes", "agent_seconds"])
def test_a_limit_that_is_never_reached_is_none(name: str) -> None:
    """Nothing is larger than nan, so it would never stop a request."""
    for value in (math.nan, math.inf, -1.0):
        with pytest.raises(BadCommand, match=f"{name} is not a limit"):
            kernelwright.Guide(llm=("local:x",), **{name: value}).checked()  # type: ignore[arg-type]  # these are numbers


def test_a_task_made_by_hand_is_read_as_strictly_as_a_file() -> None:
    """Lists serve as tuples; other kinds are refused with the name of the field; so is a contract that allows all."""
    made = kernelwright.Task(name="t", form="kernelbench", reference=3)  # type: ignore[arg-type]  # the point
    with pytest.raises(
        BadCommand, match="(?s)Task has a field of another kind.*reference of Task: expected str, got int"
    ):
        kernelwright.admit(made, services=doubles())
    lax = kernelwright.Task(
        name="t", form="kernelbench", reference="", contract=kernelwright.Contract(bits_lost=math.nan)
    )
    with pytest.raises(BadCommand, match="bits that may be lost"):
        kernelwright.admit(lax, services=doubles())


def test_a_function_takes_no_constructor_arguments() -> None:
    """They were left out in silence."""
    with pytest.raises(KernelwrightError, match="function has no constructor"):
        kernelwright.optimize(test_no_verb_is_left_out, SIZES, init_args=(3,), services=doubles())


def test_an_environment_hears_text_alone() -> None:
    """A reply that is none is no turn."""
    env = kernelwright.environment(EXAMPLE, doubles())
    env.reset()
    with pytest.raises(BadCommand, match="(?s)reply of Environment.step.*expected: text"):
        env.step(3)  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(
    ("value", "hint", "right"),
    [
        (3, float, True),
        (True, float, False),
        (True, int, False),
        ("ab", Sequence[str], False),
        (("a", "b"), Sequence[str], True),
        (("a", 3), Sequence[str], False),
        ({"a": 1}, Mapping[str, int], True),
        ({"a": "b"}, Mapping[str, int], False),
        (Path("a"), str | Path, True),
        (None, str | None, True),
        (b"a", str | Path, False),
    ],
)
def test_what_fits_an_annotation(value: object, hint: Any, right: bool) -> None:  # noqa: ANN401 - any annotation
    """What a list holds counts too."""
    assert right is kinds.fits(value, hint)
