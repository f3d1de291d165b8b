# SPDX-License-Identifier: Apache-2.0
"""An environment spoken to over lines of JSON, one object in and one object out, until the input ends.

in   {"action": "the policy's reply, as text"}     a step
     {"reset": 7} or {"reset": null}               another episode, with a seed or without
out  {"observation": [messages], "info": {...}}    before anything is read, and after a reset
     {"observation": [messages], "reward": 0.4, "terminated": false, "truncated": false, "info": {...}}
     {"error": {...}}                              a line that cannot be used: the episode is as it was before

What comes in is data: nothing of it is run but what the judge runs, confined.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from kernelwright.errors import BadCommand, KernelwrightError

if TYPE_CHECKING:
    from kernelwright.training.environment import Environment

LONGEST_LINE = 16 << 20
"""Bytes of a line; replies of over 4 MiB are cut off by the parser anyway, and JSON may write a letter as six."""
FORMS = '{"action": "reply"} or {"reset": null}'


def converse(made: Environment, asked: IO[bytes], tell: Callable[[str], None]) -> int:
    """Answer every line of ``asked`` by one to ``tell``; how many steps were judged."""
    steps = 0
    tell(_line(_begun(made, None)))
    while True:
        line = asked.readline(LONGEST_LINE + 1)
        if not line:
            return steps
        if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            _skip(asked)
        elif not line.strip():
            continue
        try:
            said = _answer(made, line)
        except KernelwrightError as error:
            said = {"error": {**error.to_json(), "exit_code": error.exit_code}}
        steps += "reward" in said
        tell(_line(said))


def _answer(made: Environment, line: bytes) -> dict[str, Any]:
    """What one line brings about. Raises KernelwrightError, BadCommand among it for a line that cannot be used."""
    given = _read(line)
    if "reset" in given:
        return _begun(made, _seed(given["reset"]))
    observation, reward, terminated, truncated, info = made.step(given["action"])
    return {
        "observation": observation, "reward": reward, "terminated": terminated, "truncated": truncated, "info": info,
    }  # fmt: skip


def _begun(made: Environment, seed: int | None) -> dict[str, Any]:
    observation, info = made.reset(seed=seed)
    return {"observation": observation, "info": info}


def _read(line: bytes) -> dict[str, Any]:
    """The one thing a line asks for. Raises BadCommand."""
    if len(line) > LONGEST_LINE:
        raise _odd("a line that is too long", f"at most {LONGEST_LINE} bytes")
    try:
        given = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _odd(f"{type(error).__name__}: {str(error)[:200]}", FORMS) from error
    if not isinstance(given, dict) or len(given) != 1 or not {"action", "reset"} & set(given):
        names = ", ".join(sorted(given))[:200] if isinstance(given, dict) else type(given).__name__
        raise _odd(names or "nothing", FORMS)
    if "action" in given and not isinstance(given["action"], str):
        raise _odd(f"an action of type {type(given['action']).__name__}", "text: what a model would say")
    return given


def _seed(value: object) -> int | None:
    if value is None or isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _odd(f"the seed {str(value)[:50]!r}", "a whole number or null")


def _odd(got: str, expected: str) -> BadCommand:
    return BadCommand("This line cannot be used.", got=got, expected=expected)


def _skip(asked: IO[bytes]) -> None:
    """Read to the end of a line that is too long."""
    while (rest := asked.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass


def _line(data: dict[str, Any]) -> str:
    """One line of JSON that every reader of JSON reads: what is not finite is null."""
    return json.dumps(_finite(data), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
