# SPDX-License-Identifier: Apache-2.0
"""The roles: each a prompt file and a parser over one Speaker. The tester may reject and never accept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.candidate import Candidate
from kernelwright.llm import Message, Speaker
from kernelwright.machine import Machine
from kernelwright.proposers.agent import brief
from kernelwright.proposers.agent.brief import Evidence, Prompts
from kernelwright.proposers.agent.parse import Malformed, candidate_from, code_blocks, json_object
from kernelwright.task import Task
from kernelwright.trial import Rejected

NATIVE = {"cpp": "cpp", "cuda": "cu"}
IMPORTS = {"triton": " and triton", "cpp": " and ctypes", "cuda": " and ctypes", "torch": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request of the search: a kind, and the evidence it works from.

    ``kind``: ``new``, ``improve``, ``repair``, ``cross``, ``contrast``, ``translate``, ``words``, ``race``."""

    kind: str
    parent: Evidence | None = None
    grandparent: Evidence | None = None
    others: tuple[Evidence, ...] = ()
    advice: str = ""
    plan: str = ""
    knowledge: tuple[str, ...] = ()
    thoughts: int = 0
    """How many designs to state before choosing (mixture of thoughts); 0: none."""
    words: str = ""
    seed: int = 0
    temperature: float = 0.7


@dataclass(slots=True)
class AgentProposer:
    """Speaks for one task on one device in one target language. Safe to share between threads."""

    speaker: Speaker
    task: Task
    device: str
    machine: Machine | None
    language: str
    """What candidates are asked to be written in: one of ``candidate.LANGUAGES``."""
    shapes: tuple[str, ...] = ()
    bound: str = ""
    entry: str = "ModelNew"
    head: str = ""
    """Advice at the head of every coder request: what meta-prompting evolves. Empty: none."""
    max_tokens: int = 16384
    prompts: Prompts = field(default_factory=Prompts)

    def propose(self, ask: Ask) -> Candidate:
        """A candidate for one request. Raises ``Malformed`` (a rejected attempt), ``BudgetSpent``, ``ModelError``."""
        name, nouns = self._request(ask)
        text = self.prompts.render(name, **nouns)
        form = self.prompts.render("answer_format", native=NATIVE.get(self.language, ""))
        reply = self._say(f"{text}\n{form}", role=f"coder.{ask.kind}", seed=ask.seed, temperature=ask.temperature)
        return candidate_from(
            reply,
            task=self.task.digest(),
            entry=self.entry,
            proposer=f"agent:{name}",
            parent=ask.parent.candidate.digest() if ask.parent else "",
            prompt=self.prompts.digest(name),
        )

    def advise(self, shown: Evidence, parent: Evidence | None, *, seed: int = 0) -> tuple[str, float]:
        """(one change in words, expected gain as a ratio of times) for a program, correct or not."""
        name = "adviser_repair" if isinstance(shown.outcome, Rejected) else "adviser"
        nouns = self._program(shown) | {"change": brief.describe_change(parent, shown)}
        found = json_object(self._say(self.prompts.render(name, **nouns), role=name, seed=seed), "change")
        lines = [f"{key}: {found[key]}" for key in ("bottleneck", "evidence", "change") if found.get(key)]
        gain = found.get("expected_gain", 1.0)
        return "\n".join(lines), float(gain) if isinstance(gain, int | float) else 1.0

    def plan(self, profile: str, *, seed: int = 0) -> str:
        """A split of the program into kernels and host code, as JSON text for the coder."""
        text = self.prompts.render("planner", reference=self.task.reference, profile=profile)
        found = json_object(self._say(text, role="planner", seed=seed), "kernels")
        rows = [", ".join(f"{key}: {value}" for key, value in row.items()) for row in found["kernels"]]
        return "\n".join([*(f"{n}. {row}" for n, row in enumerate(rows, 1)), f"host: {found.get('host', '')}"])

    def predict(self, shown: Evidence, *, seed: int = 0) -> tuple[bool, float, str]:
        """(will fail, confidence, why): the verifier's guess, never a verdict."""
        text = self.prompts.render("verifier", **self._program(shown))
        found = json_object(self._say(text, role="verifier", seed=seed, temperature=0.0), "fails")
        sure = found.get("confidence", 0.5)
        return bool(found["fails"]), float(sure) if isinstance(sure, int | float) else 0.5, str(found.get("why", ""))

    def tests(self, *, most: int = 8, seed: int = 0) -> str:
        """Source of a ``cases()`` generator. The judge runs it confined, and only against the reference's word."""
        nouns = {"reference": self.task.reference, "shapes": self.shapes, "most": most}
        reply = self._say(self.prompts.render("tester", **nouns), role="tester", seed=seed)
        found = [block.text for block in code_blocks(reply) if "def cases" in block.text]
        if not found:
            raise Malformed("the reply defines no cases()")
        return found[-1]

    def criticise(self, outcomes: Sequence[str], *, most: int = 12, seed: int = 0) -> str:
        """New advice for the head of requests, from what the old one led to (meta-prompting)."""
        nouns = {"advice": self.head or "(none)", "outcomes": outcomes, "most": most}
        reply = self._say(self.prompts.render("critic", **nouns), role="critic", seed=seed)
        return "\n".join(line for line in reply.splitlines() if line.strip())[: 200 * most]

    def summarise(self, effects: Sequence[str], *, most: int = 8, seed: int = 0) -> str:
        """What held, from measured effects only."""
        return self._say(self.prompts.render("summariser", effects=effects, most=most), role="summariser", seed=seed)

    def correct(self, rows: Sequence[str], *, seed: int = 0) -> str:
        """Textual gradient: why predictions missed, one line each."""
        return self._say(self.prompts.render("gradient", rows=rows), role="gradient", seed=seed)

    def _request(self, ask: Ask) -> tuple[str, dict[str, object]]:
        base: dict[str, object] = {"reference": self.task.reference, "knowledge": ask.knowledge}
        if ask.kind == "words":
            return "from_words", base | {"words": ask.words, "thoughts": max(ask.thoughts, 3)}
        if ask.kind in ("cross", "contrast"):
            return f"coder_{ask.kind}", base | {"programs": brief.labelled(ask.others)}
        if ask.parent is None or ask.kind == "new":
            extra = {"shapes": self.shapes, "bound": self.bound, "plan": ask.plan, "thoughts": ask.thoughts}
            return "coder_new", base | extra
        program = self._program(ask.parent) | {"advice": ask.advice, "knowledge": ask.knowledge}
        if ask.kind == "translate":
            languages = {"source_language": ask.parent.candidate.language, "target_language": self.language}
            return "translator", program | languages | {"failures": ask.knowledge}
        if ask.kind in ("repair", "race"):
            return ("race" if ask.kind == "race" else "coder_repair"), program
        return "coder_improve", program | {"change": brief.describe_change(ask.grandparent, ask.parent)}

    def _program(self, shown: Evidence) -> dict[str, object]:
        nouns: dict[str, object] = {
            "sources": shown.candidate.sources,
            "reference": self.task.reference,
            "diagnosis": shown.diagnosis or "not measured",
            "time": brief.describe_time(shown.outcome),
        }
        fault = shown.outcome if isinstance(shown.outcome, Rejected) else Rejected(stage="", reason="", detail="")
        return nouns | {"stage": fault.stage, "reason": fault.reason, "detail": brief.cut(fault.detail)}

    def _say(self, text: str, *, role: str, seed: int, temperature: float = 0.7) -> str:
        rules = self.prompts.render(
            "rules",
            entry=self.entry,
            device=self.device,
            contract=brief.describe_contract(self.task.contract),
            facts=brief.describe_machine(self.machine),
            imports=IMPORTS.get(self.language, ""),
        )
        head = f"\n{self.head}\n" if self.head and role.startswith("coder") else ""
        messages = (Message(role="system", text=rules + head), Message(role="user", text=text))
        reply = self.speaker.say(messages, role=role, max_tokens=self.max_tokens, temperature=temperature, seed=seed)
        return reply.text
