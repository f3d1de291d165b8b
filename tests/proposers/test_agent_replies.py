# SPDX-License-Identifier: Apache-2.0
"""Replies in the forms models use: native files, edits, JSON, thoughts, numbers, and what is hostile."""

from __future__ import annotations

import json

import pytest
from agent_doubles import CODE, agent, parsed, shown

from kernelwright.proposers.agent import Ask, Malformed, candidate_from, json_object

CPP = 'extern "C" void f(float* x, long n) {}\n'
LOADS = CODE + 'import ctypes\nlib = ctypes.CDLL("kernel.so")\n'
INDENTED = [text.rstrip().replace("\n", "\n   ") for text in (CPP, LOADS)]
FORMS = {
    "thoughts with drafts in them": f"<think>\n```python\nclass ModelNew: pass\n```\n</think>\n```cpp\n{CPP}```\n"
    f"```python\n{LOADS}```",
    "a thought whose beginning the server cut away": f"drafting\n```python\nclass ModelNew: x\n```\n</think>\n"
    f"```cpp\n{CPP}```\n```python\n{LOADS}```",
    "names above the fences": f"**kernel.cpp**\n```cpp\n{CPP}```\n\n### File: `kernel.py`\n\n```python\n{LOADS}```",
    "another name than the one loaded": f"```cpp relu.cpp\n{CPP}```\n```python kernel.py\n{LOADS}```",
    "the last fence left open": f"```cpp\n{CPP}```\n```python\n{LOADS}",
    "a fence never closed before the next": f"```cpp kernel.cpp\n{CPP}\n```python kernel.py\n{LOADS}```",
    "blocks inside a list": f"1. native\n\n   ```cpp\n   {INDENTED[0]}\n   ```\n2. module\n\n"
    f"   ```python\n   {INDENTED[1]}\n   ```\n",
    "calls of a tool, written out": "<tool_call>\n" + json.dumps({"name": "write_file", "arguments": {
        "path": "./kernel.cpp", "content": CPP}}) + "\n</tool_call>\n<tool_call>\n" + json.dumps({"function": {
            "name": "write_file", "arguments": json.dumps({"path": "kernel.py", "content": LOADS})}}) + "</tool_call>",
    "files as JSON in a fence": "```json\n" + json.dumps({"files": [
        {"filename": "kernel.cpp", "code": CPP}, {"filename": "kernel.py", "code": LOADS}]}, indent=1) + "\n```",
    "files in tags": f'<file path="kernel.cpp">\n{CPP}</file>\n<file path="kernel.py">\n{LOADS}</file>',
    "fences behind text": f"The kernel: ```cpp\n{CPP}```\nand: ```python\n{LOADS}```",
    "marks of a server": f"<|channel|>final<|message|>```cpp\n{CPP}```\n```python\n{LOADS}```<|return|>",
    "files as the keys of JSON": "```json\n" + json.dumps({"files": {"kernel.cpp": CPP, "kernel.py": LOADS}}) + "\n```",
    "a thought's mark in a comment": f"```cpp\n{CPP}```\n```python\n# <reasoning> of rows\n{LOADS}```",
    "a thought that never ends": f"<think>\nrows first\n```cpp\n{CPP}```\n```python\n{LOADS}```",
    "a folder of their own": f"### src/kernel.cpp\n```cpp\n{CPP}```\n### src/kernel.py\n```python\n{LOADS}```",
    "commands to build it": f"```bash\ng++ kernel.cpp\n```\n```cpp\n{CPP}```\n```python\n{LOADS}```",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_native_program_is_found_in_the_forms_models_use(name: str) -> None:
    """Both files arrive under the names the program needs, and drafts do not."""
    sources = dict(parsed(FORMS[name]).sources)
    assert ["kernel.cpp", "kernel.py"] == sorted(sources)
    main = sources["kernel.py"].removeprefix("#  of rows\n")  # the mark itself is lost
    assert (CPP.strip(), LOADS.strip()) == (sources["kernel.cpp"].strip(), main.strip())


def test_a_thought_that_was_cut_off_is_no_program() -> None:
    """What stands in it is a draft; the model is asked again with more room."""
    voice, parrot = agent(f"<think>\n```python\n{CODE}```\nbut")
    parrot.finish = "length"
    with pytest.raises(Malformed, match="cut off"):
        voice.propose(Ask(kind="new"))


def test_code_alone_in_an_object_is_the_module() -> None:
    """``{"code": ...}``; prose in an object is not."""
    assert CODE.strip() == dict(parsed(json.dumps({"code": CODE})).sources)["kernel.py"].strip()
    with pytest.raises(Malformed):
        parsed(json.dumps({"text": "a class ModelNew would do"}))


def test_a_module_of_another_name_is_entered_by_that_name() -> None:
    """``class Model`` in place of ModelNew is the program; a quotation of the reference with its inputs is not."""
    other = CODE.replace("ModelNew", "Model")
    assert "kernel.py::Model" == parsed(f"```python\n{other}```").entry
    quoted = other + "\ndef get_inputs():\n    return []\n"
    with pytest.raises(Malformed, match="ModelNew"):
        parsed(f"The reference is\n```python\n{quoted}```\nand I need more time.")


def test_cuda_in_a_cpp_fence_is_cuda() -> None:
    """The language word is often wrong; ``__global__`` is not."""
    found = parsed(f"```cpp\n__global__ void f() {{}}\n```\n```python\n{LOADS}```")
    assert ("cuda", ["kernel.cu", "kernel.py"]) == (found.language, [name for name, _ in found.sources])


BASE = parsed(f"```cpp kernel.cpp\n{CPP}```\n```python kernel.py\n{LOADS}```")
NEW = CPP.replace("{}", "{ n; }")
EDITS = {
    "only the file that changed": f"```cpp kernel.cpp\n{NEW}```",
    "search and replace": f"```\n<<<<<<< SEARCH\n{CPP}=======\n{NEW}>>>>>>> REPLACE\n```",
    "a unified diff": f"```diff\n--- a/kernel.cpp\n+++ b/kernel.cpp\n@@ -1 +1 @@\n-{CPP}+{NEW}```",
    "a diff of one file beside the other, whole": f"```diff kernel.cpp\n@@ -1 +1 @@\n-{CPP}+{NEW}```\n"
    f"```python kernel.py\n{LOADS}```",
    "the module alone, which loads the old object": f"```python\n{LOADS}# changed\n```",
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_a_reply_that_holds_less_than_the_program_is_completed_from_its_parent(name: str) -> None:
    """Left-out files come from the program that was to be changed, and edits are applied to it."""
    found = candidate_from(EDITS[name], task="t", entry="ModelNew", proposer="p", base=BASE)
    sources = dict(found.sources)
    changed = "# changed" in sources["kernel.py"] if "module" in name else "{ n; }" in sources["kernel.cpp"]
    assert (["kernel.cpp", "kernel.py"], True) == (sorted(sources), changed)


def test_an_edit_that_fits_nowhere_is_malformed() -> None:
    """A diff against lines that are not there is no program, and the request to answer again can say so."""
    reply = "```diff\n@@ -1 +1 @@\n-int nowhere;\n+int x;\n```"
    with pytest.raises(Malformed, match="do not fit"):
        candidate_from(reply, task="t", entry="ModelNew", proposer="p", base=BASE)


def test_an_edit_that_shows_what_is_new_in_a_whole_file_is_no_edit() -> None:
    """Models often show the difference first; where an edit is of another file and does not fit, none is made up."""
    shown = f"```diff\n@@ -1 +1 @@\n-old\n+new\n```\n```cpp kernel.cpp\n{NEW}```\n```python kernel.py\n{LOADS}```"
    found = candidate_from(shown, task="t", entry="ModelNew", proposer="p", base=BASE)
    assert NEW.strip() == dict(found.sources)["kernel.cpp"].strip()
    unfit = f"```diff kernel.cpp\n@@ -1 +1 @@\n-old\n+new\n```\n```python kernel.py\n{LOADS}```"
    with pytest.raises(Malformed, match="do not fit"):
        candidate_from(unfit, task="t", entry="ModelNew", proposer="p", base=BASE)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_without_end_is_no_number(digits: int) -> None:
    """A model that loops sends one; the reply is read as far as it can be, and nothing else happens."""
    number = "1" * digits
    voice, _ = agent(f'{{"change": "tile", "expected_gain": {number}}}', f'{{"fails": true, "confidence": {number}}}')
    assert ("tile" in voice.advise(shown(), None)[0], 1.0) == (True, voice.advise(shown(), None)[1])
    with pytest.raises(Malformed):
        parsed(f'so {{"a": {number}}}')


def test_numbers_and_truth_values_are_read_as_people_write_them() -> None:
    """A gain of "1.4x", a verdict of "false" and a confidence of 85 mean what they say."""
    voice, _ = agent(
        "Sure:\n{'change': 'tile', 'expected_gain': '1.4x',}", '{"fails": "false", "confidence": 85}',
        "The rows are read three times.\n\nRead them once.", '{"kernels": ["one kernel"], "host": "none"}',
    )  # fmt: skip
    assert ("change: tile", 1.4) == voice.advise(shown(), None)
    assert (False, 0.85) == voice.predict(shown())[:2]
    assert ("The rows are read three times.\n\nRead them once.", 1.0) == voice.advise(shown(), None)
    assert "1. one kernel\nhost: none" == voice.plan("")


def test_a_hostile_reply_is_read_in_time() -> None:
    """A third of a megabyte of openings of every kind the parsers know is malformed within seconds, not hours."""
    for piece in (
        "{",
        "<think>",
        "```a\n",
        "<<<<<<< S\n",
        "@@ x\n",
        '{"a":',
        "~~~\n```\n",
        '{"a":[',
        '{"path": "a.py", "content": "x"}',
    ):
        reply = piece * (300_000 // len(piece))
        with pytest.raises(Malformed):
            parsed(reply)
        with pytest.raises(Malformed):
            json_object(reply, "change")
