# SPDX-License-Identifier: Apache-2.0
"""load/candidates.py: replacement files are read with what they need, and refused when they are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.errors import CandidateError
from kernelwright.load import load_candidate
from kernelwright.task import Task

TASK = Task(name="t", form="kernelbench", reference="class Model: pass\n")


def test_a_python_file_is_one_source_with_its_class_as_entry(tmp_path: Path) -> None:
    """ModelNew where there is one, else a class named as the reference's."""
    (tmp_path / "a.py").write_text("import torch\nclass Model: pass\nclass ModelNew(Model): pass\n")
    (tmp_path / "b.py").write_text("import triton\nclass Model: pass\n")
    first, second = (load_candidate(tmp_path / name, TASK) for name in ("a.py", "b.py"))
    assert ("a.py::ModelNew", "torch", TASK.digest()) == (first.entry, first.language, first.task)
    assert ("b.py::Model", "triton") == (second.entry, second.language)
    assert ["a.py"] == [name for name, _ in first.sources]


def test_the_replacement_may_be_another_name_of_a_class(tmp_path: Path) -> None:
    """``ModelNew = Fast``, or a class under a condition; what is only imported from the reference is none."""
    texts = ("class Fast: pass\nModelNew = Fast\n", "try:\n    class ModelNew: pass\nexcept ImportError: pass\n")
    for text in texts:
        (tmp_path / "a.py").write_text(text)
        assert "a.py::ModelNew" == load_candidate(tmp_path / "a.py", TASK).entry
    (tmp_path / "a.py").write_text("from reference import Model\nclass Fast(Model): pass\n")
    with pytest.raises(CandidateError, match="no replacement"):
        load_candidate(tmp_path / "a.py", TASK)


def test_a_compiled_source_that_the_python_file_mentions_travels_along(tmp_path: Path) -> None:
    """An exported folder can be judged again; an unrelated source beside it stays out."""
    (tmp_path / "optimized.py").write_text("LIB = 'fast.so'\nclass ModelNew: pass\n")
    (tmp_path / "fast.cpp").write_text("//")
    (tmp_path / "other.cpp").write_text("//")
    candidate = load_candidate(tmp_path, TASK)
    assert ("cpp", ["fast.cpp", "optimized.py"]) == (candidate.language, [name for name, _ in candidate.sources])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.py", "def f(:", "not valid Python"),
        ("a.py", "class Other: pass", "no replacement"),
        ("a.txt", "", "That is no candidate(.|\n)*a.txt(.|\n)*ending"),
    ],
)
def test_what_cannot_be_a_candidate_is_refused_before_judging(tmp_path: Path, name: str, text: str, words: str) -> None:
    """These are the user's mistakes, so errors and not rejections."""
    (tmp_path / name).write_text(text)
    with pytest.raises(CandidateError, match=words):
        load_candidate(tmp_path / name, TASK)


def test_a_source_beside_it_that_is_no_text_is_named(tmp_path: Path) -> None:
    """The compiled file's own name, not a traceback."""
    (tmp_path / "a.py").write_text("class ModelNew: pass  # loads k.so")
    (tmp_path / "k.cpp").write_bytes(b"\xff\xfe")
    with pytest.raises(CandidateError, match="k.cpp"):
        load_candidate(tmp_path / "a.py", TASK)


def test_a_missing_candidate_is_named(tmp_path: Path) -> None:
    """With its path."""
    with pytest.raises(CandidateError) as caught:
        load_candidate(tmp_path / "none.py", TASK)
    assert "none.py" in caught.value.got
    for path, words in (("", "an empty path"), (str(tmp_path), "a folder")):
        with pytest.raises(CandidateError, match=words):
            load_candidate(path, TASK)


def test_odd_characters_in_a_file_s_name_are_no_reason_to_reject_it(tmp_path: Path) -> None:
    """The judge takes plain names alone; a space in the user's is nothing that a program did wrong."""
    (tmp_path / "my kernel é.cpp").write_text(
        'extern "C" void f(float* out, const float* x, long n) { out[0] = x[0]; }'
    )
    (tmp_path / "my (new) model.py").write_text("class ModelNew: pass\n")
    raw, python = (load_candidate(path, TASK) for path in sorted(tmp_path.iterdir(), key=lambda path: path.suffix))
    assert ["my_kernel__.cpp", "optimized.py"] == [name for name, _ in raw.sources]
    assert "'my_kernel__.so'" in dict(raw.sources)["optimized.py"]
    assert "my__new__model.py::ModelNew" == python.entry
    assert ["my__new__model.py"] == [name for name, _ in python.sources]
    assert ("my kernel é.cpp as given", "my (new) model.py as given") == (raw.note, python.note)


@pytest.mark.parametrize("name", ["triton.py", "numpy.py", "json.py"])
def test_a_file_named_like_a_module_does_not_stand_in_for_it(tmp_path: Path, name: str) -> None:
    """The judge refuses such a source; what it is called is nothing that its author needs."""
    (tmp_path / name).write_text("import triton\nclass ModelNew: pass\n")
    found = load_candidate(tmp_path / name, TASK)
    assert (f"its_{name}::ModelNew", "triton") == (found.entry, found.language)
    assert [f"its_{name}"] == [own for own, _ in found.sources]
    assert f"{name} as given" == found.note


def test_what_says_for_which_machine_a_library_was_built_travels_with_its_source(tmp_path: Path) -> None:
    """A drop-in whose library nothing is said of answers by the reference: one of 1.5x was judged as 0.6x."""
    (tmp_path / "optimized.py").write_text("LIBRARY = 'kernels.so'\nclass ModelNew:\n    pass\n")
    (tmp_path / "kernels.cpp").write_text("int one() { return 1; }\n")
    (tmp_path / "others.so.json").write_text("{}")
    names = {name for name, _ in load_candidate(tmp_path / "optimized.py", TASK).sources}
    assert {"optimized.py", "kernels.cpp"} == names
    (tmp_path / "kernels.so.json").write_text('{"machine": "x86_64"}')
    sources = dict(load_candidate(tmp_path, TASK).sources)
    assert '{"machine": "x86_64"}' == sources["kernels.so.json"] and 3 == len(sources)
