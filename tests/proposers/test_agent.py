# SPDX-License-Identifier: Apache-2.0
"""Prompts rendered from nouns, replies parsed whatever they look like, tunables found and set."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from kernelwright.candidate import Candidate
from kernelwright.llm import Budget, Limits, Message, Reply, Speaker
from kernelwright.proposers.agent import (
    AgentProposer,
    Ask,
    Evidence,
    Malformed,
    Prompts,
    candidate_from,
    code_blocks,
    declared_space,
    describe_contract,
    json_object,
    with_values,
)
from kernelwright.task import Contract, Task
from kernelwright.trial import Rejected
from kernelwright.tuning import Parameter, Space

CODE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
TASK = Task(name="relu", form="kernelbench", reference="class Model: 'THE REFERENCE'")


def parsed(reply: str) -> Candidate:
    """The candidate of a reply to TASK."""
    return candidate_from(reply, task=TASK.digest(), entry="ModelNew", proposer="agent:test")


class Parrot:
    """A model that gives the next scripted reply and remembers what it heard."""

    name = "test:parrot"

    def __init__(self, *replies: str) -> None:
        self.replies, self.heard = list(replies), []

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """The next reply."""
        self.heard.append(messages)
        text = self.replies.pop(0)
        return Reply(text=text, model=self.name, input_tokens=1, output_tokens=1, usd=0.0, finish="stop")

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """Free."""
        return 0.0


def agent(*replies: str, language: str = "torch") -> tuple[AgentProposer, Parrot]:
    """A proposer over a parrot."""
    parrot = Parrot(*replies)
    speaker = Speaker(parrot, Budget(Limits()))
    return AgentProposer(speaker=speaker, task=TASK, device="cpu", machine=None, language=language), parrot


def shown(**changes: object) -> Evidence:
    """A candidate rejected at verify."""
    outcome = Rejected(stage="verify", reason="off by one", detail="row 3")
    base = Evidence(candidate=parsed(f"```python\n{CODE}```"), outcome=outcome, diagnosis="")
    return dataclasses.replace(base, **changes)


REPLIES = {
    "one fence": f"Fast relu.\n```python kernel.py\n{CODE}```",
    "a draft, then the program": f"```\nx = 1\n```\nthen\n```py\nclass ModelNew: pass\n```\n```python\n{CODE}```",
    "no fence at all": CODE,
    "tildes": f"~~~python\n{CODE}~~~\n",
    "windows line ends": f"```python\n{CODE}```".replace("\n", "\r\n"),
    "prose of a megabyte around it": "blah " * 200_000 + f"\n```python\n{CODE}```\n" + "blah " * 200_000,
}


@pytest.mark.parametrize("name", REPLIES)
def test_the_program_is_found_whatever_surrounds_it(name: str) -> None:
    """The last block that defines the entry class is the program, byte for byte."""
    found = parsed(REPLIES[name])
    assert (CODE.strip(), "kernel.py::ModelNew") == (dict(found.sources)["kernel.py"].strip(), found.entry)


@pytest.mark.parametrize(
    ("reply", "why"),
    [("", "no fenced"), ("I cannot do that.", "no fenced"), ("```rust\nfn main() {}\n```", "rust"),
     (f"```python\n{CODE[:60]}".replace("class ModelNew", "class Model"), "no fenced")],
)
def test_a_reply_without_a_program_is_malformed_and_says_why(reply: str, why: str) -> None:
    """Empty, prose, wrong language, cut off: a Malformed that names the reason, never an exception of another kind."""
    with pytest.raises(Malformed, match=why):
        parsed(reply)


def test_native_files_belong_to_the_program_under_the_name_it_loads() -> None:
    """An unnamed C++ block takes the name of the .so that the Python file opens."""
    main = CODE + 'import ctypes\nlib = ctypes.CDLL("fast_relu.so")\n'
    found = parsed(f"```cpp\nextern \"C\" void f() {{}}\n```\n```python\n{main}```")
    assert (["fast_relu.cpp", "kernel.py"], "cpp") == ([name for name, _ in found.sources], found.language)
    named = parsed(f"```cuda relu.cu\n__global__ void f();\n```\n```python\n{CODE}```")
    assert (["kernel.py", "relu.cu"], "cuda") == ([name for name, _ in named.sources], named.language)


def test_a_name_in_the_first_comment_counts() -> None:
    """Models that put the file name inside the block are understood."""
    assert ["relu.cpp"] == [block.name for block in code_blocks("```cpp\n// relu.cpp\nint x;\n```")]


def test_triton_is_recognised_by_its_import() -> None:
    """The language of a single Python file follows from what it imports."""
    assert ("triton", "torch") == (parsed(f"```python\nimport triton\n{CODE}```").language, parsed(CODE).language)


def test_json_is_found_in_prose_and_needs_its_keys() -> None:
    """The last object with every required key wins; without one the reply is malformed."""
    reply = 'thinking {"change": 1} and {not json} so:\n```json\n{"change": "tile", "expected_gain": 2}\n```'
    assert {"change": "tile", "expected_gain": 2} == json_object(reply, "change")
    with pytest.raises(Malformed, match="fails"):
        json_object(reply, "fails")


def test_declared_tunables_become_a_space_and_are_written_back() -> None:
    """Values come from the comment, the default from the constant; a declaration without a constant is passed over."""
    text = (
        "# tunable BLOCK: 128, 256, 512\n# tunable GHOST: 1, 2\n# where BLOCK <= 256\nBLOCK = 256\n" + CODE
    )
    found = parsed(f"```python\n{text}```\n```cpp k.cpp\n// tunable UNROLL: 2, 4\n#define UNROLL 4\n```")
    space = declared_space(found)
    expected = Space(
        parameters=(Parameter(name="UNROLL", values=(4, 2)), Parameter(name="BLOCK", values=(256, 128, 512))),
        constraints=("BLOCK <= 256",),
    )
    assert (set(expected.parameters), expected.constraints) == (set(space.parameters), space.constraints)
    changed = dict(with_values(found, {"BLOCK": 128, "UNROLL": 2}).sources)
    assert (True, True) == ("\nBLOCK = 128\n" in changed["kernel.py"], "#define UNROLL 2" in changed["k.cpp"])


def test_every_contract_rule_is_said_and_nothing_else_about_precision() -> None:
    """Each enforced option of the contract adds its own sentence; loosening it changes what is said."""
    strict = describe_contract(Contract())
    loose = describe_contract(Contract(bits_lost=8.0, gradients=True, frozen_parameters=True, deterministic=True))
    assert any("at most 1 bit" in line for line in strict)
    assert any("at most 8 bit" in line for line in loose)
    assert 2 == len(loose) - len(strict)
    assert not any("never change" in line for line in strict)


def test_every_prompt_file_renders_with_the_nouns_of_its_role() -> None:
    """Strict rendering: each kind of request, each adviser, planner, tester, verifier and critic, has all it names."""
    program = f"```python\n{CODE}```"
    advice, fails, plan = '{"change": "c"}', '{"fails": false}', '{"kernels": [{"name": "k"}], "host": "h"}'
    tests = "```python cases.py\ndef cases():\n    yield\n```"
    voice, parrot = agent(*[program] * 8, advice, advice, plan, fails, tests, "new advice", "held", "rows")
    base, good = shown(), shown(outcome=None, diagnosis="gap 3 us, limiter memory")
    for ask in (
        Ask(kind="new", thoughts=3, plan="p"), Ask(kind="improve", parent=good, grandparent=base),
        Ask(kind="repair", parent=base), Ask(kind="cross", others=(good, base)), Ask(kind="contrast", others=(good,)),
        Ask(kind="translate", parent=good), Ask(kind="words", words="add one"), Ask(kind="race", parent=base),
    ):
        assert "ModelNew" in voice.propose(ask).entry
    voice.advise(base, None), voice.advise(good, base), voice.plan("profile"), voice.predict(good)
    voice.tests(), voice.criticise(["worse"]), voice.summarise(["tiling: 1.2x"]), voice.correct(["row"])
    used = {"rules", "answer_format", "coder_new", "coder_improve", "coder_repair", "coder_cross", "coder_contrast"}
    used |= {"translator", "from_words", "race", "adviser", "adviser_repair", "planner", "verifier", "tester"}
    Prompts().render("agent_task", system="s", request="r", reference="x")
    assert used | {"critic", "summariser", "gradient", "agent_task"} == set(Prompts().names())
    assert all("THE REFERENCE" in heard[1].text for heard in parrot.heard[:9])


def test_an_improvement_is_asked_with_the_diagnosis_of_exactly_that_program() -> None:
    """The prompt shows the parent's own code, diagnosis, change and advice, and the candidate records its descent."""
    voice, parrot = agent(f"```python\n{CODE}```")
    parent = shown(outcome=None, diagnosis="gap 412 us: unvectorised loads")
    child = voice.propose(Ask(kind="improve", parent=parent, advice="use float4", knowledge=("tiling: 1.3x, n=4",)))
    text = parrot.heard[0][1].text
    assert [True] * 4 == [part in text for part in ("412 us", "use float4", "tiling: 1.3x", CODE.strip())]
    assert (parent.candidate.digest(), Prompts().digest("coder_improve")) == (child.parent, child.prompt)


def test_the_head_of_requests_reaches_coders_only() -> None:
    """Evolved advice is for those who write programs, not for those who review them."""
    voice, parrot = agent(f"```python\n{CODE}```", '{"change": "c"}')
    voice.head = "ADVICE-77"
    voice.propose(Ask(kind="new"))
    voice.advise(shown(), None)
    assert [True, False] == ["ADVICE-77" in heard[0].text for heard in parrot.heard]
