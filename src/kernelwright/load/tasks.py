# SPDX-License-Identifier: Apache-2.0
"""A KernelBench-form file or a task folder to a Task; every mistake in it gets one message with its place."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import math
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright import kinds
from kernelwright.errors import BadCommand, TaskDoesNotImport, TaskError, TaskIncomplete, TaskNotFound
from kernelwright.load.beside import Files, carried
from kernelwright.load.source import sibling_imports, text_of, top_level_names, unreachable
from kernelwright.task import Case, Contract, Task

REQUIRED = ("get_inputs", "get_init_inputs")
_TOP_KEYS = ("name", "summary", "entry", "contract", "case")
_CASE_KEYS = ("name", "axes", "timed", "device")


@kinds.checked
def load_task(path: str | Path, device: str = "cpu") -> Task:
    """The task at ``path``: a KernelBench-form ``.py`` file, or a folder with task.toml and reference.py.

    ``device`` (``cpu`` or ``cuda:N``) drops the cases of a folder that are meant for another kind. Raises
    TaskNotFound, TaskDoesNotImport (syntax), TaskIncomplete (a required name is missing) and TaskError.
    """
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise BadCommand("There is no such kind of device.", got=repr(device), expected="cpu or cuda:N")
    place = Path(path).expanduser()
    if place.name == "task.toml":
        place = place.parent
    missing = unreachable(place)
    if not missing and place.is_dir():
        return _folder(place, kind)
    if missing or not place.is_file():
        raise TaskNotFound(
            "There is no task.",
            got=missing or f"{place} is neither a file nor a folder",
            expected="a .py file with Model, get_inputs and get_init_inputs, or a folder with task.toml",
            what_next="check the path",
        )
    if place.suffix != ".py":
        raise TaskNotFound(
            "This file is not a task.",
            got=place.name,
            expected="a .py file in KernelBench form; an existing kernel is given with --start beside its task",
        )
    text = read_python(place)
    _complete(place, text, "Model")
    beside, imports = carried(sibling_imports(place.parent, text), text)
    return Task(
        name=place.stem,
        form="kernelbench",
        reference=text,
        imports=imports,
        beside=beside,
        raw=_raw([place], place.parent, beside),
    )


def read_python(path: Path) -> str:
    """The text of a Python file that parses. Raises TaskDoesNotImport naming the line, TaskNotFound if unreadable."""
    try:
        text = text_of(path)
        ast.parse(text)
    except OSError as error:
        raise TaskNotFound("The file cannot be read.", got=str(error), expected="a readable file") from error
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) and error.lineno else str(error)
        raise TaskDoesNotImport(
            f"{path} is not valid Python.", got=line, expected="a file that Python can import", what_next="correct it"
        ) from error
    return text


def _folder(folder: Path, kind: str) -> Task:
    description, reference = folder / "task.toml", folder / "reference.py"
    for needed in (description, reference):
        if not needed.is_file():
            raise TaskNotFound(
                f"{folder} is not a task folder.",
                got=f"no {needed.name}",
                expected="task.toml and reference.py (decoys.py is optional)",
            )
    try:
        table = tomllib.loads(description.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{description} is not valid TOML.", got=str(error), expected="TOML 1.0") from error
    _known(description, "", table, _TOP_KEYS)
    entry = _typed(description, "entry", table.get("entry", "Model"), str)
    text = read_python(reference)
    _complete(reference, text, entry)
    decoys = folder / "decoys.py"
    beside, imports = carried(sibling_imports(folder, text), text)
    files = [description, reference] + ([decoys] if decoys.is_file() else [])
    return Task(
        name=_typed(description, "name", table.get("name", folder.resolve().name), str),
        form="folder",
        reference=text,
        entry=entry,
        decoys=read_python(decoys) if decoys.is_file() else "",
        cases=_cases(description, table.get("case", []), kind),
        contract=_contract(description, table.get("contract", {})),
        imports=imports,
        beside=beside,
        raw=_raw(files, folder, beside),
    )


def _contract(path: Path, table: object) -> Contract:
    fields = _typed(path, "contract", table, dict)
    hints = typing.get_type_hints(Contract)
    _known(path, "contract.", fields, tuple(hints))
    given: dict[str, Any] = {}
    for name, value in fields.items():
        if hints[name] is bool or hints[name] is float:
            kind = bool if hints[name] is bool else float
            given[name] = _typed(path, f"contract.{name}", value, kind)
        else:
            given[name] = _tuples(_typed(path, f"contract.{name}", value, list))
    contract = Contract(**given)
    layouts = ("contiguous", "strided", "transposed", "offset")
    odd = [layout for layout in contract.layouts if layout not in layouts]
    if odd:
        raise _wrong(path, "contract.layouts", odd, "some of " + ", ".join(layouts))
    if not 0.0 <= contract.bits_lost <= 64.0:
        raise _wrong(path, "contract.bits_lost", contract.bits_lost, "0 to 64")
    if not contract.layouts:
        raise _wrong(path, "contract.layouts", [], "at least contiguous")
    if not contract.scales or not all(_is_scale(scale) for scale in contract.scales):
        raise _wrong(path, "contract.scales", list(contract.scales), "a list of finite numbers, none of them 0")
    for name in ("mutates", "as_drawn"):
        if not all(map(_is_place, places := getattr(contract, name))):
            raise _wrong(path, f"contract.{name}", list(places), "a list of positions of inputs, from 0 on")
    for name in ("aliases", "index_outputs"):
        pairs = getattr(contract, name)
        if not all(isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_place, pair)) for pair in pairs):
            raise _wrong(path, f"contract.{name}", list(pairs), "a list of pairs [output, input], counted from 0")
    return dataclasses.replace(contract, scales=tuple(float(scale) for scale in contract.scales))


def _is_place(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value != 0


def _cases(path: Path, tables: object, kind: str) -> tuple[Case, ...]:
    cases: list[Case] = []
    for number, table in enumerate(_typed(path, "case", tables, list)):
        fields = _typed(path, f"case[{number}]", table, dict)
        _known(path, f"case[{number}].", fields, _CASE_KEYS)
        if fields.get("device", kind) != kind:
            continue
        axes = _typed(path, f"case[{number}].axes", fields.get("axes", {}), dict)
        sizes = tuple((name, _typed(path, f"case[{number}].axes.{name}", size, int)) for name, size in axes.items())
        cases.append(
            Case(
                name=_typed(path, f"case[{number}].name", fields.get("name", f"case{number}"), str),
                axes=sizes,
                timed=_typed(path, f"case[{number}].timed", fields.get("timed", False), bool),
            )
        )
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        raise _wrong(path, "case", names, "names that differ")
    if sum(case.timed for case in cases) > 1:
        timed = [case.name for case in cases if case.timed]
        raise _wrong(path, "case", f"timed cases {timed}", "at most one timed case per device kind")
    return tuple(cases) or (Case(name="main", timed=True),)


def _complete(path: Path, text: str, entry: str) -> None:
    names = top_level_names(text)
    missing = [name for name in (entry, *REQUIRED) if name not in names]
    if missing:
        raise TaskIncomplete(
            f"{path} does not define {' and '.join(missing)}.",
            got=", ".join(sorted(name for name in names if not name.startswith("_"))[:12]) or "no definitions",
            expected=f"an nn.Module class {entry}, get_inputs() and get_init_inputs() at top level",
            what_next=f"add {' and '.join(missing)}",
        )


def _known(path: Path, prefix: str, table: Mapping[str, object], allowed: tuple[str, ...]) -> None:
    odd = sorted(set(table) - set(allowed))
    if odd:
        got = ", ".join(prefix + name for name in odd)
        raise _wrong(path, "", got, "keys among " + ", ".join(prefix + name for name in allowed))


def _typed(path: Path, name: str, value: object, kind: type) -> Any:
    numeric = kind is float and isinstance(value, int) and not isinstance(value, bool)
    if not numeric and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        words = {str: "text", bool: "true or false", int: "a whole number", float: "a number", dict: "a table"}
        raise _wrong(path, name, repr(value), words.get(kind, "a list"))
    return float(typing.cast(int, value)) if numeric else value


def _tuples(value: object) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _wrong(path: Path, name: str, got: object, expected: str) -> TaskError:
    what = f"{path}: {name} is wrong." if name else f"{path} has a key that nothing reads."
    return TaskError(what, got=str(got), expected=expected, what_next="correct task.toml")


def _raw(files: Sequence[Path], folder: Path, beside: Files) -> tuple[tuple[str, str], ...]:
    own = [file.name for file in files]
    return tuple((name, _sha256(folder / name)) for name in (*own, *(n for n, _ in beside if n not in own)))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
