# SPDX-License-Identifier: Apache-2.0
"""How requests are put: the system message, the program in question and the form of the answer, from nouns."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from kernelwright.machine import Machine
from kernelwright.proposers.agent import brief, effects
from kernelwright.proposers.agent.brief import Evidence, Prompts
from kernelwright.task import Task
from kernelwright.trial import Rejected, Timed

NATIVE = {"cpp": "cpp", "cuda": "cu"}
KEPT = ("improve", "repair", "race")
"""Kinds of request whose program may stay in the language it is in."""
MOST_OF_MODULES = 20_000
"""Characters of the modules that a reference imports from beside it: more would crowd out the rest."""
IMPORTS = {"triton": ", triton", "cpp": ", ctypes", "cuda": ", ctypes", "torch": ""}


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
    history: tuple[str, ...] = ()
    """What was tried so far, a line each, oldest first."""
    advised: tuple[str, ...] = ()
    """Earlier advice and what was measured of it, a line each, oldest first: for whoever advises."""
    thoughts: int = 0
    """How many designs to state before choosing (mixture of thoughts); 0: none."""
    words: str = ""
    beside: int = 0
    """Requests like this one that are being answered at the same time."""
    seed: int = 0
    temperature: float = 0.7
    unread: str = ""
    """The reply to this same request that no program could be read from; it is asked again in the same conversation."""
    fault: str = ""
    """Why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every prompt shows of task and machine besides the reference and the contract."""

    shapes: tuple[str, ...] = ()
    """Inputs, outputs and weights of the timed case, a line each."""
    eager: str = ""
    """A first look at eager's time: left out beside a program that was raced against it."""
    bound: str = ""
    cases: str = ""
    """What the judge checks beyond the timed case, in a sentence."""
    toolchain: str = ""
    """The command that compiles native files."""
    compiler: str = ""
    """What that compiler is and which instructions it may use."""
    vector_bits: int = 0
    watched: bool = False
    """Compiled programs run under sanitizers before they are timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Everything that is said about one task on one device in one target language."""

    task: Task
    device: str
    machine: Machine | None
    language: str
    about: Surroundings = field(default_factory=Surroundings)
    tuning: int = 0
    entry: str = "ModelNew"
    prompts: Prompts = field(default_factory=Prompts)

    def rules(self) -> str:
        """What the judge enforces on this task, on this machine: the system message of every request."""
        contract = self.task.contract
        return self.prompts.render(
            "rules",
            entry=self.entry,
            device=self.device,
            contract=brief.describe_contract(dataclasses.replace(contract, training=False)),
            training=contract.training,
            gradients=contract.gradients,
            cases=self.about.cases,
            facts=brief.describe_machine(self.machine, self.about.vector_bits),
            imports=IMPORTS.get(self.language, ""),
            native=NATIVE.get(self.language, ""),
            toolchain=self.about.toolchain,
            compiler=self.about.compiler,
            watched=self.about.watched,
        )

    def request(self, ask: Ask) -> tuple[str, str]:
        """(name of the prompt file, the request with the form of the answer)."""
        name, nouns = self._nouns(ask)
        written = ask.parent.candidate.language if ask.parent is not None and ask.kind in KEPT else self.language
        other = written not in (self.language, "torch")
        form = self.prompts.render(
            "answer_format", native=NATIVE.get(self.language, ""), language=self.language, entry=self.entry,
            tuning=self.tuning, stays=brief.SPOKEN[written] if other else "",
            ending=NATIVE.get(written, "") if other else "",
        )  # fmt: skip
        return name, f"{self.prompts.render(name, **nouns)}\n{form}"

    def _nouns(self, ask: Ask) -> tuple[str, dict[str, object]]:
        task = self.task_text(ask.parent, *ask.others)
        base: dict[str, object] = {
            "task": task,
            "knowledge": ask.knowledge,
            "history": ask.history,
            "beside": ask.beside,
        }
        if ask.kind == "words":
            return "from_words", base | {"words": ask.words, "thoughts": ask.thoughts}
        if ask.kind in ("cross", "contrast"):
            programs = [
                (f"Program {number}: {effects.describe_time(shown.outcome, bound=False)}.", self.sources(shown))
                for number, shown in enumerate(ask.others, 1)
            ]
            order = effects.describe_order([shown.outcome for shown in ask.others])
            return f"coder_{ask.kind}", base | {"programs": programs, "order": order}
        if ask.parent is None or ask.kind == "new":
            return "coder_new", base | {"plan": ask.plan, "thoughts": ask.thoughts}
        program = base | self.program(ask.parent) | {"advice": ask.advice}
        if ask.kind == "translate":
            languages = {
                "source_language": brief.SPOKEN[ask.parent.candidate.language],
                "target_language": brief.SPOKEN[self.language],
            }
            more = {"failures": ask.history, "timed": isinstance(ask.parent.outcome, Timed)}
            more["is_reference"] = ask.parent.candidate.proposer == "reference"  # which the task shows anyway
            return "translator", program | languages | more
        if ask.kind in ("repair", "race"):
            return ("race" if ask.kind == "race" else "coder_repair"), program
        return "coder_improve", program | {"change": brief.describe_change(ask.grandparent, ask.parent)}

    def task_text(self, *beside: Evidence | None) -> str:
        """The reference with the timed case and its bound. ``beside``: programs that the request shows."""
        raced = any(isinstance(shown.outcome, Timed) for shown in beside if shown is not None)
        bound = " ".join(text for text in ("" if raced else self.about.eager, self.about.bound) if text)
        modules = "".join(f"\n\n\n# {name}, which it imports:\n{text.strip()}" for name, text in self.task.beside)
        reference = self.task.reference.strip() + modules[:MOST_OF_MODULES]
        nouns = {"reference": reference, "shapes": self.about.shapes, "bound": bound}
        return self.prompts.render("task", **nouns).strip()

    def inputs_example(self) -> str:
        """The timed case's inputs, all of one value, as a tester would write them."""
        found = [re.fullmatch(r"input \S+ (\w+) (\[[\d, ]*\]).*", line) for line in self.about.shapes]
        made = [f"torch.full({said[2]}, 3, dtype=torch.{said[1]})" for said in found if said is not None]
        return ", ".join(made) or "torch.full([64, 64], 3.0)"

    def sources(self, shown: Evidence) -> str:
        """The files of a program, each in its fence."""
        sources = [(path, text.strip("\n")) for path, text in shown.candidate.sources]
        return self.prompts.render("program", sources=sources)

    def program(self, shown: Evidence) -> dict[str, object]:
        """The nouns of a request about one program."""
        nouns: dict[str, object] = {
            "program": self.sources(shown),
            "task": self.task_text(shown),
            "diagnosis": shown.diagnosis.strip(),
            "time": effects.describe_time(shown.outcome),
        }
        fault = shown.outcome if isinstance(shown.outcome, Rejected) else Rejected(stage="", reason="", detail="")
        said = brief.own_frames(fault.detail.strip(), [name for name, _ in shown.candidate.sources], fault.reason)
        detail = "" if said in fault.reason else brief.cut(said)
        meaning = brief.STAGES.get(fault.stage, "")
        nouns |= {"stage": fault.stage, "reason": fault.reason, "detail": detail, "meaning": meaning}
        nouns |= {"predicted": fault.reason == effects.PREDICTED}
        close = brief.is_close(fault)  # what was counted says something of rounding, nothing of a wrong formula
        return nouns | {"counted": shown.diagnosis.strip() if close else "", "close": close}
