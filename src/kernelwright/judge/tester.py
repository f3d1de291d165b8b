# SPDX-License-Identifier: Apache-2.0
"""Inputs that someone else wrote (a model in the role of a tester): they may reject a candidate and never accept one.

The source runs confined and hands over bytes, nothing else. A case is used only where its tensors have the shapes and
dtypes of the timed case, and where the reference gives finite and well-conditioned results on it. It is judged on an
instance and a checker of its own, in addition to the contract's cases: whatever it shows about the reference changes no
tolerance of theirs, and its own error counts like any other.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright import sandbox
from kernelwright.errors import TaskError
from kernelwright.judge import numerics
from kernelwright.judge.bench import Bench
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance, State
from kernelwright.judge.verify import Checker
from kernelwright.trial import CaseResult

MOST_CASES = 8
MOST_BYTES = 1 << 30
"""Of all inputs of all cases together."""
LONGEST_SOURCE = 200_000
LIMITS = sandbox.Limits(seconds=60.0, memory_bytes=8 << 30, processes=64, file_bytes=MOST_BYTES, output_bytes=1 << 20)
SHOWN = 6
"""Values of an input that are shown with a failure."""


@dataclass(slots=True)
class ExtraCase:
    """One case that the reference confirms."""

    name: str
    leaves: list[torch.Tensor]
    checker: Checker
    variant: Variant

    def check(self, state: State, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> CaseResult:
        """Compare one call of a candidate on these inputs."""
        return self.checker.check(self.variant, self.leaves, state, outputs, inputs)

    def shown(self, result: CaseResult) -> str:
        """What failed on which values, for whoever mends the program."""
        lines = [f"case {self.name!r} of the tester: {result.detail}"]
        for index, leaf in enumerate(self.leaves):
            flat = leaf.reshape(-1)
            values = ", ".join(f"{value:.6g}" for value in flat[:SHOWN].to(torch.float64).tolist())
            whole = flat.to(torch.float64)
            spread = f"from {float(whole.min()):.6g} to {float(whole.max()):.6g}" if flat.numel() else "empty"
            kind = str(leaf.dtype).removeprefix("torch.")
            lines.append(f"input {index}: {kind} {list(leaf.shape)}, {spread}; it begins {values}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Extras:
    """The cases in use, and why others are not."""

    cases: tuple[ExtraCase, ...]
    notes: tuple[str, ...]


def confirmed(bench: Bench, source: str) -> Extras:
    """The cases of ``source`` that the reference of ``bench`` confirms. Raises nothing for what the source does."""
    if bench.contract.random or bench.contract.training:
        return Extras((), ("outputs are random or the module is in training: cases of a tester are not used",))
    made, notes = _written(bench, source)
    cases = []
    for number, (name, leaves) in enumerate(made):
        found = _confirm(bench, f"{number}: {name}", leaves)
        if isinstance(found, str):
            notes.append(f"case {name!r} is not used: {found}")
        else:
            cases.append(found)
    return Extras(tuple(cases), tuple(notes))


def _confirm(bench: Bench, name: str, leaves: list[torch.Tensor]) -> ExtraCase | str:
    """The case, or why it is not used."""
    variant = Variant(name=f"tester {name}", required=True)
    try:
        instance = Instance(bench.reference, bench.task.timed_case())
        checker = Checker(instance, seed=bench.seed % 2**31)
        truth = checker.truth(variant, leaves, bench.timed.instance.first_state)
    except TaskError as error:
        return f"the reference does not take it ({error.what})"
    except (RuntimeError, ValueError, IndexError, TypeError, ArithmeticError) as error:
        return f"the reference fails on it ({type(error).__name__}: {str(error)[:200]})"
    for index, out in enumerate(truth.eager):
        if not numerics.finite(out):
            return f"output {index} of the reference is not finite there"
    if instance.without_double != bench.timed.instance.without_double or checker.notes:
        return "the reference is ill-conditioned there"
    return ExtraCase(name, leaves, checker, variant)


def _written(bench: Bench, source: str) -> tuple[list[tuple[str, list[torch.Tensor]]], list[str]]:
    """(name, inputs) as the source wrote them, run confined; only bytes of the right number and size are read."""
    if len(source) > LONGEST_SOURCE:
        return [], ["the tester's source is too long"]
    with tempfile.TemporaryDirectory(prefix="tester-") as place:
        folder = Path(place)
        (folder / "cases.py").write_text(source, encoding="utf-8", errors="replace")
        out = folder / "out"
        out.mkdir()
        done = sandbox.run(
            [sys.executable, "-P", str(Path(__file__).with_name("tester_child.py")), str(folder / "cases.py"), str(out),
             str(MOST_CASES)],
            limits=LIMITS,
            readable=(folder, Path(__file__).parent, sys.prefix, sys.base_prefix),
            writable=(out,),
            cwd=folder,
            env={"TMPDIR": str(out), "HOME": str(out), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            listed = json.loads((out / "index.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
            return [], [f"the tester's source failed: {done.killed or last[:200]}"]
        return _read(bench, out, listed)


def _read(bench: Bench, out: Path, listed: Any) -> tuple[list[tuple[str, list[torch.Tensor]]], list[str]]:
    specs = bench.timed.instance.specs
    expected = [{"shape": list(spec.shape), "dtype": spec.dtype} for spec in specs]
    made, notes, total = [], [], 0
    for number, row in enumerate(listed[:MOST_CASES] if isinstance(listed, list) else []):
        name, tensors = str(row.get("name", number))[:60], row.get("tensors")
        if tensors != expected:
            notes.append(f"case {name!r} is not used: its inputs are {str(tensors)[:200]}, not {str(expected)[:200]}")
            continue
        leaves = []
        for index, spec in enumerate(specs):
            dtype = getattr(torch, spec.dtype)
            size = dtype.itemsize
            for length in spec.shape:
                size *= length
            path = out / f"{number}.{index}.bin"
            total += size
            if path.is_symlink() or not path.is_file() or path.stat().st_size != size or total > MOST_BYTES:
                break
            flat = torch.frombuffer(bytearray(path.read_bytes()), dtype=dtype) if size else torch.empty(0, dtype=dtype)
            leaves.append(flat.reshape(spec.shape).to(bench.device))
        if len(leaves) == len(specs):
            made.append((name, leaves))
        else:
            notes.append(f"case {name!r} is not used: its bytes are missing or too many")
    return made, notes
