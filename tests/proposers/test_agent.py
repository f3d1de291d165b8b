# SPDX-License-Identifier: Apache-2.0
"""Prompts rendered from nouns, replies parsed whatever they look like, tunables found and set."""

from __future__ import annotations

import json

import pytest
from agent_doubles import CODE, agent, parsed, shown

from kernelwright.proposers.agent import (
    Ask,
    Malformed,
    Prompts,
    code_blocks,
    declared_space,
    describe_contract,
    json_object,
    with_values,
)
from kernelwright.task import Contract
from kernelwright.tuning import Parameter, Space

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
    [
        ("", "no fenced"),
        ("I cannot do that.", "no fenced"),
        ("```rust\nfn main() {}\n```", "rust"),
        (f"```python\n{CODE[:60]}".replace("class ModelNew", "class Model"), "no fenced"),
        (f"```python\n{CODE[:50]}", "ends inside one that is not whole"),
    ],
)
def test_a_reply_without_a_program_is_malformed_and_says_why(reply: str, why: str) -> None:
    """Empty, prose, wrong language, cut off: a Malformed that names the reason, never an exception of another kind."""
    with pytest.raises(Malformed, match=why):
        parsed(reply)


def test_native_files_belong_to_the_program_under_the_name_it_loads() -> None:
    """An unnamed C++ block takes the name of the .so that the Python file opens."""
    main = CODE + 'import ctypes\nlib = ctypes.CDLL("fast_relu.so")\n'
    found = parsed(f'```cpp\nextern "C" void f() {{}}\n```\n```python\n{main}```')
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
    text = "# tunable BLOCK: 128, 256, 512\n# tunable GHOST: 1, 2\n# where BLOCK <= 256\nBLOCK = 256\n" + CODE
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
    options = {"gradients": True, "frozen_parameters": True, "deterministic": True, "as_drawn": (2,)}
    loose = describe_contract(Contract(bits_lost=8.0, **options))
    assert any("at most 2 times" in line and "(1 bit lost)" in line for line in strict)
    assert any("at most 256 times" in line and "(8 bits lost)" in line for line in loose)
    assert 3 == len(loose) - len(strict) and any("[2] come only" in line for line in loose)
    assert not any("never change" in line for line in strict)


def test_every_prompt_file_renders_with_the_nouns_of_its_role() -> None:
    """Strict rendering: each kind of request, each adviser, planner, tester, verifier and critic, has all it names."""
    program = f"```python\n{CODE}```"
    advice, fails, plan = '{"change": "c"}', '{"fails": false}', '{"kernels": [{"name": "k"}], "host": "h"}'
    tests = "```python cases.py\ndef cases():\n    yield\n```"
    voice, parrot = agent(*[program] * 9, advice, advice, plan, fails, tests, "new advice", "held", "rows")
    base, good = shown(), shown(outcome=None, diagnosis="gap 3 us, limiter memory")
    for ask in (
        Ask(kind="new", thoughts=3, plan="p"),
        Ask(kind="improve", parent=good, grandparent=base),
        Ask(kind="repair", parent=base),
        Ask(kind="cross", others=(good, base)),
        Ask(kind="contrast", others=(good,)),
        Ask(kind="translate", parent=good),
        Ask(kind="words", words="add one"),
        Ask(kind="race", parent=base),
        Ask(kind="new", fault="no block", unread="prose"),
    ):
        assert "ModelNew" in voice.propose(ask).entry
    voice.advise(base, None), voice.advise(good, base), voice.plan("profile"), voice.predict(good)
    voice.tests(), voice.criticise(["worse"]), voice.summarise(["tiling: 1.2x"]), voice.correct(["row"])
    used = {"rules", "answer_format", "coder_new", "coder_improve", "coder_repair", "coder_cross", "coder_contrast"}
    used |= {"translator", "from_words", "race", "adviser", "adviser_repair", "planner", "verifier", "tester"}
    used |= {"task", "program", "coder_again"}
    for check in ("", "kernelwright judge kernel.py"):
        text = Prompts().render("agent_task", system="s", request="r", reference="x", check=check)
        assert ("kernelwright judge" in text) == bool(check)
    assert used | {"critic", "summariser", "gradient", "agent_task"} == set(Prompts().names())
    assert all("THE REFERENCE" in heard[1].text for heard in parrot.heard)


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


def test_an_unreadable_reply_is_asked_again_in_the_same_conversation() -> None:
    """The model sees its own words and what was wrong with them, after the request it answered."""
    voice, parrot = agent("I would use tiles.", f"```python\n{CODE}```")
    with pytest.raises(Malformed, match="no fenced") as caught:
        voice.propose(Ask(kind="new"))
    voice.propose(Ask(kind="new", unread=caught.value.reply, fault=str(caught.value)))
    roles = [message.role for message in parrot.heard[1]]
    assert ["system", "user", "assistant", "user"] == roles
    assert (parrot.heard[0][1], "I would use tiles.") == (parrot.heard[1][1], parrot.heard[1][2].text)
    assert "no fenced code block" in parrot.heard[1][3].text


@pytest.mark.parametrize(
    ("reply", "note"),
    [("Rows in parallel, then SIMD.\n```python\n{code}```\nUsage:", "Rows in parallel, then SIMD."),
     ("```python\n# one pass over each row\n{code}```\nTo compile by hand:\n", "one pass over each row"),
     ("```cpp kernel.cpp\n#include <cmath>\n// two rows at once\n```\n```python\n{code}```", "two rows at once"),
     ("```python\n# kernel.py\n# tunable A: 1, 2, 3\n{code}```\nUsage of the model:", ""),
     ("The defect is an index.\n\n**In short:** rows, four at once.\n```python\n{code}```", "rows, four at once."),
     ("```python\n{code}```\nIn short: one pass, tail masked", "one pass, tail masked"),
     ("Designs:\n1. Three passes over x.\n2. One pass, row in cache.\n3. A table.\n\nThe least time (about 1.1 ms) "
      "has design 2.\n```python\n{code}```", "One pass, row in cache."),
     ("**Design 1:** three passes\n**Design 2:** one pass, two rows\nI choose 2.\n```python\n{code}```",
      "one pass, two rows"),
     (json.dumps({"path": "kernel.py", "content": "import torch\nclass ModelNew(torch.nn.Module): pass"}), ""),
     ("**File 1: `kernel.py`**\n```python kernel.py\n{code}```", ""), ("<answer>\n```python\n{code}```\n</answer>", ""),
     ("The new kernel is below:\n```python\n# two rows at once\n{code}```", "two rows at once")],
)  # fmt: skip
def test_the_note_says_what_the_model_did(reply: str, note: str) -> None:
    """The line asked for, else the design chosen, what stands before the code, a comment in it; never a heading, how
    to call it, the file's name or what is left open."""
    assert note == parsed(reply.replace("{code}", CODE)).note


def test_a_comment_that_names_the_file_is_no_part_of_it() -> None:
    """It would begin every diff."""
    assert CODE == dict(parsed(f"```python\n# kernel.py\n{CODE}```").sources)["kernel.py"]


def test_an_adviser_that_was_cut_off_is_no_adviser() -> None:
    """Prose counts as advice, its end first; the beginning of something endless does not."""
    voice, parrot = agent("So much to say. " * 999 + "Use tiles of 32.", "So much to say. " * 999)
    assert voice.advise(shown(), None)[0].endswith("Use tiles of 32.")
    parrot.finish = "length"
    with pytest.raises(Malformed, match="no JSON object"):
        voice.advise(shown(), None)


@pytest.mark.parametrize(("language", "mark"), [("cpp", "kernel.cpp"), ("cuda", "kernel.cu"), ("triton", "triton.jit")])
def test_the_example_of_an_answer_is_an_answer(language: str, mark: str) -> None:
    """The form shown to models parses to a candidate of the language asked for, with every file it needs."""
    text = Prompts().render("answer_format", native={"cpp": "cpp", "cuda": "cu"}.get(language, ""), language=language,
                            entry="ModelNew", tuning=0, stays="", ending="")  # fmt: skip
    found = parsed(text)
    assert (language, True) == (found.language, mark in text)
