# SPDX-License-Identifier: Apache-2.0
"""The roles: each a prompt file and a parser over one Speaker. The tester may reject and never accept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.candidate import Candidate
from kernelwright.llm import Message, Reply, Speaker
from kernelwright.machine import Machine
from kernelwright.proposers.agent import brief
from kernelwright.proposers.agent.brief import Evidence, Prompts
from kernelwright.proposers.agent.fences import code_blocks, prose
from kernelwright.proposers.agent.parse import Malformed, candidate_from, json_object
from kernelwright.proposers.agent.talk import real, spoken, truth
from kernelwright.proposers.agent.wording import Ask, Surroundings, Wording
from kernelwright.task import Task
from kernelwright.trial import Rejected

LONGEST_ADVICE = 2000
LONGEST_QUOTE = 12_000
ENDS = {
    "length": "; it was cut off for its length: think and explain less",
    "tool_call": "; it calls a tool, and there are none here: the files belong into the text",
    "content_filter": "; it was refused, or ended by a filter of the server",
}
"""How a reply ended, for one that no program could be read from."""
LONGEST_RAMBLE = 1000
"""Characters of an unreadable reply that are shown again to the model that gave it; of one that was cut off, fewer."""


@dataclass(slots=True)
class AgentProposer:
    """Speaks for one task on one device in one target language. Safe to share between threads."""

    speaker: Speaker
    task: Task
    device: str
    machine: Machine | None
    language: str
    """What candidates are asked to be written in: one of ``candidate.LANGUAGES``."""
    about: Surroundings = field(default_factory=Surroundings)
    tuning: int = 0
    """Trials that declared tunables are given; 0: prompts do not offer any."""
    entry: str = "ModelNew"
    head: str = ""
    """Advice at the head of every coder request: what meta-prompting evolves. Empty: none."""
    max_tokens: int = 16384
    prompts: Prompts = field(default_factory=Prompts)

    @property
    def wording(self) -> Wording:
        """How requests are put."""
        return Wording(
            task=self.task, device=self.device, machine=self.machine, language=self.language, about=self.about,
            tuning=self.tuning, entry=self.entry, prompts=self.prompts,
        )  # fmt: skip

    def propose(self, ask: Ask) -> Candidate:
        """A candidate for one request. Raises ``Malformed`` (a rejected attempt), ``BudgetSpent``, ``ModelError``."""
        name, text = self.wording.request(ask)
        messages = [Message(role="user", text=text)]
        if ask.fault:
            again = self.prompts.render("coder_again", fault=ask.fault)
            most = LONGEST_RAMBLE if "cut off for its length" in ask.fault else LONGEST_QUOTE
            messages.append(Message(role="assistant", text=ask.unread[:most] or "(nothing)"))
            messages.append(Message(role="user", text=again))
        role = f"coder.{ask.kind}" + (".again" if ask.fault else "")
        reply = self._said(messages, role=role, seed=ask.seed, temperature=ask.temperature)
        try:
            return candidate_from(
                reply.text,
                task=self.task.digest(),
                entry=self.entry,
                proposer=f"agent:{name}",
                parent=ask.parent.candidate.digest() if ask.parent else "",
                prompt=self.prompts.digest(name),
                base=ask.parent.candidate if ask.parent else None,
                whole=reply.finish != "length",
            )
        except Malformed as fault:
            worse = Malformed(f"{fault}{ENDS.get(reply.finish, '')}")
            worse.reply, worse.cut = spoken(reply.text) or reply.text, reply.finish == "length"
            worse.asked = ask
            raise worse from fault

    def advise(
        self, shown: Evidence, parent: Evidence | None, *, history: Sequence[str] = (), knowledge: Sequence[str] = (),
        advised: Sequence[str] = (), seed: int = 0,
    ) -> tuple[str, float]:  # fmt: skip
        """(one change in words, expected gain as a ratio of times) for a program, correct or not.

        An adviser that answers in prose is understood too. Raises ``Malformed`` for an empty answer."""
        name = "adviser_repair" if isinstance(shown.outcome, Rejected) else "adviser"
        nouns = self.wording.program(shown) | {"change": brief.describe_change(parent, shown)}
        nouns |= {"history": history, "knowledge": knowledge, "advised": advised}
        nouns |= {"language": brief.SPOKEN[shown.candidate.language]}
        reply = self._say(self.prompts.render(name, **nouns), role=name, seed=seed, whole="change")
        try:
            found = json_object(reply, "change")
        except Malformed:
            return _ending(reply, LONGEST_ADVICE), 1.0
        lines = [f"{key}: {found[key]}" for key in ("bottleneck", "evidence", "change") if found.get(key)]
        return "\n".join(lines)[:LONGEST_ADVICE], max(0.0, real(found.get("expected_gain"), 1.0))

    def plan(self, profile: str, *, seed: int = 0) -> str:
        """A split of the program into kernels and host code, as lines for the coder. Raises ``Malformed``."""
        nouns = {"task": self.wording.task_text(), "profile": profile, "device": self.device}
        text = self.prompts.render("planner", **nouns, language=brief.SPOKEN[self.language])
        reply = self._say(text, role="planner", seed=seed, whole="kernels")
        try:
            found = json_object(reply, "kernels")
        except Malformed:
            return _ending(reply, 2 * LONGEST_ADVICE)
        kernels = found["kernels"] if isinstance(found["kernels"], list) else [found["kernels"]]
        rows = [_row(kernel) for kernel in kernels]
        return "\n".join([*(f"{n}. {row}" for n, row in enumerate(rows, 1)), f"host: {found.get('host', '')}"])

    def predict(self, shown: Evidence, *, seed: int = 0) -> tuple[bool, float, str]:
        """(will fail, confidence, why): the verifier's guess, never a verdict. Raises ``Malformed``."""
        text = self.prompts.render("verifier", **self.wording.program(shown))
        found = json_object(self._say(text, role="verifier", seed=seed, temperature=0.0), "fails")
        sure = real(found.get("confidence"), 0.5)
        sure = sure / 100 if sure > 1 else sure
        return truth(found["fails"]), sure, " ".join(str(found[key]) for key in ("where", "why") if found.get(key))

    def tests(self, *, most: int = 8, like: Evidence | None = None, history: Sequence[str] = (), seed: int = 0) -> str:
        """Source of a ``cases()`` generator. The judge runs it confined, and only against the reference's word."""
        program = self.wording.sources(like) if like is not None else ""
        nouns = {"task": self.wording.task_text(), "example": self.wording.inputs_example(), "program": program}
        text = self.prompts.render("tester", **nouns, most=most, history=history)
        reply = self._say(text, role="tester", seed=seed)
        found = [block.text for block in code_blocks(reply) if "def cases" in block.text]
        if not found and "def cases" in reply and not code_blocks(reply):
            found = [reply]
        if not found:
            raise Malformed("the reply defines no cases()")
        return found[-1]

    def criticise(self, outcomes: Sequence[str], *, most: int = 12, seed: int = 0) -> str:
        """New advice for the head of requests, from what the old one led to (meta-prompting)."""
        nouns = {"advice": self.head or "(none)", "outcomes": outcomes, "most": most, "task": self.wording.task_text()}
        return _lines(self._say(self.prompts.render("critic", **nouns), role="critic", seed=seed), most)

    def summarise(self, effects: Sequence[str], *, most: int = 8, seed: int = 0) -> str:
        """What held, from measured effects only."""
        text = self.prompts.render("summariser", effects=effects, most=most, task=self.wording.task_text())
        return _lines(self._say(text, role="summariser", seed=seed), most)

    def correct(self, rows: Sequence[str], *, seed: int = 0) -> str:
        """Textual gradient: why predictions missed, one line each."""
        text = self.prompts.render("gradient", rows=rows, task=self.wording.task_text())
        return _lines(self._say(text, role="gradient", seed=seed), max(1, len(rows)))

    def _say(self, text: str, *, role: str, seed: int, temperature: float = 0.7, whole: str = "") -> str:
        """``whole``: a reply without an object that has this key counts only if it was not cut off."""
        message = Message(role="user", text=text)
        reply = self._said([message], role=role, seed=seed, temperature=temperature)
        if whole and reply.finish == "length":
            json_object(reply.text, whole)
        return spoken(reply.text)

    def _said(self, messages: Sequence[Message], *, role: str, seed: int, temperature: float) -> Reply:
        head = ""
        if self.head and role.startswith("coder"):
            head = f"\n## Advice from earlier attempts\n\n{self.head}\n"
        first = Message(role="system", text=self.wording.rules() + head)
        return self.speaker.say(
            (first, *messages), role=role, max_tokens=self.max_tokens, temperature=temperature, seed=seed
        )


def _ending(reply: str, most: int) -> str:
    """The end of a reply in prose, where conclusions stand. Raises ``Malformed`` where it says nothing."""
    said = prose(reply).strip()
    if not said:
        raise Malformed("the reply says nothing")
    return said if len(said) <= most else "..." + said[-most:]


def _row(kernel: object) -> str:
    return ", ".join(f"{key}: {value}" for key, value in kernel.items()) if isinstance(kernel, dict) else str(kernel)


def _lines(text: str, most: int) -> str:
    """At most so many lines of 300 characters, fences and blank ones left out."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.strip().startswith("```")]
    return "\n".join(line[:300] for line in lines[:most])
