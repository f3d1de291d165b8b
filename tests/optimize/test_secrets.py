# SPDX-License-Identifier: Apache-2.0
"""A key in what is said of a failure, at every place where that is cut: not one piece of it is left anywhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_modelled import CANARY, TASK, asked, everything, go, quick

from kernelwright import model_server
from kernelwright.errors import ModelError
from kernelwright.llm import Budget, Limits, Message, Recorder, Speaker
from kernelwright.model_server import ScriptedServer
from kernelwright.optimize.guide import Guide
from kernelwright.optimize.voices import models

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

__all__ = ["quick"]  # the fixture of these tests too
PIECE = CANARY[:9]


def refusal(kind: str, padding: int) -> tuple[int, bytes, dict[str, str]]:
    """An answer that names the key after so many letters."""
    text = "x" * padding + CANARY
    if kind == "moved":
        return 307, b"", {"Location": f"http://elsewhere.invalid/{text}"}
    body = text if kind == "plain" else json.dumps({"error": {"message": text}})
    return 401, body.encode(), {}


@pytest.mark.parametrize(("kind", "places"), [("json", (240, 310)), ("plain", (260, 310)), ("moved", (140, 210))])
def test_a_key_across_the_cut_of_a_servers_words_leaves_nothing(
    kind: str, places: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are cut before they are looked for are not found."""
    paddings = list(range(*places, 3))
    said: list[int] = []

    def answer(behaviour: str, code: str, request: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        said.append(paddings[len(said)])
        return refusal(kind, said[-1])

    monkeypatch.setattr(model_server, "_said", answer)
    with ScriptedServer(["ok"], "") as server:
        (model,) = models(asked(server, llm=("openai:gpt-4o",)), TASK, tmp_path)
        voice = Speaker(model, Budget(Limits()), Recorder(tmp_path / "llm.jsonl"), patience=0.0)
        for padding in paddings:
            with pytest.raises(ModelError, match="x{100}") as caught:
                voice.say([Message(role="user", text="?")], role="coder", max_tokens=64, seed=padding)
            assert PIECE not in str(caught.value)
    assert said == paddings
    assert PIECE not in everything(tmp_path)


def test_a_key_that_the_client_library_cuts_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the beginning and the end of a value that it did not expect, before anyone can clean it."""
    paddings = iter(range(60))

    def answer(behaviour: str, code: str, request: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        content = {"part": "x" * next(paddings) + CANARY + "y" * 20}
        return 200, json.dumps({"choices": [{"message": {"content": content}}]}).encode(), {}

    monkeypatch.setattr(model_server, "_said", answer)
    with ScriptedServer(["ok"], "") as server:
        (model,) = models(asked(server, llm=("openai:gpt-4o",)), TASK, tmp_path)
        voice = Speaker(model, Budget(Limits()), Recorder(tmp_path / "llm.jsonl"), patience=0.0)
        for seed in range(10):
            with pytest.raises(ModelError, match="should be a valid string"):
                voice.say([Message(role="user", text="?")], role="coder", max_tokens=64, seed=seed)
    assert PIECE not in everything(tmp_path)


def test_a_key_across_the_cut_of_an_agents_words_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The last words of a command that failed are shown; a variable that it was given stands where they begin."""
    secret = "0123456789" + "qwertzuiop"
    monkeypatch.setenv("GIVEN", secret)
    script = tmp_path / "agent.py"
    script.write_text("import os, sys\nsys.exit('x' * 99 + os.environ['GIVEN'] + 'y' * 489)\n")
    guide = Guide(agent=f"{sys.executable} {script}", agent_env=("GIVEN",), language="torch", parallel=1)
    with pytest.raises(ModelError, match="y{400}") as caught:
        go(tmp_path / "run", guide)
    assert secret[-5:] not in everything(tmp_path / "run") + str(caught.value)
