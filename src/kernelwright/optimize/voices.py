# SPDX-License-Identifier: Apache-2.0
"""From a Guide to speaking models: keys from the environment, one budget and one record for all, memory first."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright import recipes, settings, wire
from kernelwright.errors import BadCommand
from kernelwright.llm import Budget, Limits, Memory, Message, Model, ModelFailure, Recorder, Reply, Speaker, spent
from kernelwright.llm.provider import KEY_NAMES, ProviderModel
from kernelwright.machine import Machine
from kernelwright.optimize.agent import CommandModel
from kernelwright.optimize.guide import Guide
from kernelwright.optimize.surroundings import about
from kernelwright.proposers.agent import AgentProposer
from kernelwright.task import Task

RECORD, LOG, KNOWN = "llm.jsonl", "guided.jsonl", "knowledge.sqlite"


class Absent:
    """Stands for a model in a replay, which asks none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """Nobody is there."""
        raise ModelFailure("a replay asks no model", temporary=False)

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """Nothing is asked, nothing is paid."""
        return None


def key_names(guide: Guide) -> tuple[str, ...]:
    """Every variable whose value must never be seen: keys of the providers, and what the agent command is given."""
    known = settings.read()
    named = [name for spec in guide.llm for name in KEY_NAMES.get(spec.partition(":")[0], ())]
    return (*named, *([known.llm_key_name] if known.llm_key_name else []), *guide.agent_env)


def models(guide: Guide, task: Task, run: Path, device: str = "cpu") -> list[Model]:
    """The models, ready to be asked. Raises ModelError for an unknown provider, BadCommand for a missing key."""
    chosen = settings.read().llm_key_name
    hidden = key_names(guide)

    def clean(text: str) -> str:
        return settings.redacted(text, hidden)

    made: list[Model] = []
    for spec in guide.llm:
        name = chosen or settings.first_set(KEY_NAMES.get(spec.partition(":")[0], ()))
        key = settings.secret(name) if name else None
        price = (guide.price[0], guide.price[1]) if guide.price else None
        made.append(ProviderModel(spec, key=key, base_url=guide.base_url or None, price=price, clean=clean))
    if guide.agent:
        made.append(
            CommandModel(
                guide.agent, run / "agent", reference=task.reference, names=guide.agent_env,
                seconds=guide.agent_seconds, clean=clean, check=_check(device),
            )
        )  # fmt: skip
    return made


def _check(device: str) -> str:
    """The command by which an agent judges what it wrote; it names this interpreter, which may not be on its PATH."""
    return f"{shlex.quote(sys.executable)} -m kernelwright judge kernel.py --task reference.py --device {device}"


def absent(guide: Guide, task: Task, run: Path) -> list[Model]:
    """The names of the models alone, for a replay."""
    names = list(guide.llm)
    if guide.agent:
        names.append(CommandModel(guide.agent, run, reference=task.reference).name)
    return [Absent(name) for name in names]


def budget(guide: Guide, run: Path) -> Budget:
    """The guide's limits, less what the run's record says was used."""
    limits = Limits(
        usd=guide.max_usd,
        tokens=guide.max_tokens,
        requests=guide.max_requests,
        seconds=None if guide.max_minutes is None else 60.0 * guide.max_minutes,
    )
    return Budget(limits, spent(run / RECORD))


def voices(
    guide: Guide, task: Task, device: str, nouns: Mapping[str, Any], made: Sequence[Model], run: Path,
    memory: Memory, *, paid: Budget | None,
) -> dict[str, AgentProposer]:  # fmt: skip
    """One voice for each model, all with one memory. ``paid`` None: a replay, which sends nothing.

    ``nouns`` is what the prompts show of device and task, as it was when the run began."""
    hidden = key_names(guide)
    recorder = Recorder(run / RECORD) if paid is not None else None
    machine = wire.from_data(Machine, nouns["machine"]) if nouns.get("machine") else None
    return {
        model.name: AgentProposer(
            speaker=Speaker(
                model, paid or Budget(Limits()), recorder, memory=memory, offline=paid is None,
                clean=lambda text: settings.redacted(text, hidden),
            ),
            task=task,
            device=device,
            machine=machine,
            language=language(guide, device),
            about=about(nouns, watched=bool(recipes.find(guide.recipe).sanitize)),
            tuning=recipes.find(guide.recipe).tuning,
        )
        for model in made
    }  # fmt: skip


def language(guide: Guide, device: str) -> str:
    """What candidates are asked to be written in. Raises BadCommand for one that does not run on the device."""
    asked = guide.language or recipes.find(guide.recipe).language
    chosen = asked or ("cpp" if device == "cpu" else "triton")
    if chosen in (("triton", "cuda") if device == "cpu" else ("cpp",)):
        raise BadCommand(
            f"Programs in {chosen} do not run on {device}.",
            got=f"--language {guide.language}" if guide.language else f"recipe {guide.recipe}",
            expected="cpp or torch" if device == "cpu" else "triton, cuda or torch",
        )
    return chosen
