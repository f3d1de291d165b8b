# SPDX-License-Identifier: Apache-2.0
"""What the compiler made of a GPU kernel, from its machine code (cuobjdump): no counter and no permission is needed.

Registers, stack and shared memory come from ``-res-usage``, instruction counts from ``-sass``, weighted by loop depth.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernelwright import sandbox
from kernelwright.judge.profile.loops import Instruction, weights

LIMITS = sandbox.Limits(seconds=60.0, memory_bytes=2 << 30, processes=64, file_bytes=1 << 20, output_bytes=64 << 20)
_HEAD = re.compile(r"^\s*Function\s*:\s*(\S+)")
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+\{?\s*(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[\w.]+)?)\s*([^;]*);")
_USAGE = re.compile(r"Function\s+(\S+):\s*\n\s*REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)\s+LOCAL:(\d+)")
_BRANCH = re.compile(r"(?:^|[\s,])0x([0-9a-f]+)\s*$")
TENSOR = ("HMMA", "HGMMA", "QGMMA", "IGMMA", "IMMA", "DMMA", "BGMMA", "BMMA", "QMMA", "OMMA", "UTCHMMA", "UTCQMMA")
DOUBLE = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
MEMORY = ("LDG", "STG", "LDL", "STL", "LDS", "STS", "LD", "ST", "ATOM", "ATOMG", "ATOMS", "RED", "LDGSTS", "UBLKCP")
SIZES = (("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2), ("64", 8), ("128", 16))
"""Suffix of a load to its bytes; none is 4."""
Kernel = dict[str, float]


def tool() -> str | None:
    """cuobjdump of the toolkit, else the one Triton brings along."""
    found = shutil.which("cuobjdump") or shutil.which("cuobjdump", path="/usr/local/cuda/bin")
    if found is not None:
        return found
    triton = importlib.util.find_spec("triton")
    if triton is None or not triton.submodule_search_locations:
        return None
    path = Path(triton.submodule_search_locations[0]) / "backends" / "nvidia" / "bin" / "cuobjdump"
    return str(path) if path.is_file() else None


def facts(
    objects: Sequence[Path], scratch: Path, ran: Mapping[str, float] | None = None
) -> tuple[dict[str, Kernel], list[str]]:
    """(counts by kernel name, notes) of shared objects and cubins; ``scratch`` is a folder for the tool's own files.

    ``ran``: registers of a thread of each kernel launched. Variants of one name (a template's, a tuner's) that are
    told apart by them count only where they ran; of those that remain the mean is taken.
    """
    if not objects:
        return {}, ["no compiled object belongs to this candidate"]
    command = tool()
    if command is None:
        return {}, ["compiled code was not read: there is no cuobjdump"]
    found: dict[str, list[Kernel]] = {}
    for path in objects:
        texts = []
        for option in ("-res-usage", "-sass"):
            done = sandbox.run(
                [command, option, str(path)],
                limits=LIMITS,
                readable=(path.parent, Path(command).resolve().parent),
                writable=(scratch,),
                cwd=path.parent,
                env={"TMPDIR": str(scratch)},
            )
            if done.returncode != 0:
                return chosen(found, ran or {}), [
                    f"compiled code was not read: cuobjdump: {(done.stderr or done.stdout).strip()[:200]}"
                ]
            texts.append(done.stdout)
        for name, kernel in kernels(*texts).items():
            found.setdefault(plain(name), []).append(kernel)
    return chosen(found, ran or {}), []


def chosen(found: Mapping[str, Sequence[Kernel]], ran: Mapping[str, float]) -> dict[str, Kernel]:
    """One kernel a name: the mean of the variants with the registers of the launch, of all where none has them."""
    kept: dict[str, Kernel] = {}
    for name, variants in found.items():
        alike = [one for one in variants if one.get("registers") == ran.get(name)] or variants
        keys = {key for one in alike for key in one}
        kept[name] = {
            key: max(values) if key in KEPT else sum(values) / len(alike)
            for key in keys
            if (values := [one.get(key, 0.0) for one in alike])
        }
    return kept


KEPT = ("registers", "stack_bytes", "static_shared_bytes")


def plain(name: str) -> str:
    """The identifier in a mangled or demangled kernel name: ``_Z4copyPfPKf`` and ``void copy<4>(...)`` are ``copy``."""
    if name.startswith("_Z"):
        rest, last = name[2:], ""
        rest = rest[1:] if rest.startswith("N") else rest
        while True:
            rest = rest[1:] if rest.startswith(("L", "S")) and rest[1:2].isdigit() else rest
            match = re.match(r"(\d+)", rest)
            if match is None:
                return last or name
            size = int(match[1])
            last, rest = rest[match.end() : match.end() + size], rest[match.end() + size :]
            if not name.startswith("_ZN"):
                return last
    head = re.split(r"[<(]", name.replace("(anonymous namespace)::", "").replace("<unnamed>::", ""))[0].split()
    return head[-1].split("::")[-1] if head else name


def kernels(usage: str, disassembly: str) -> dict[str, Kernel]:
    """Counts by function name as the object has it."""
    found: dict[str, Kernel] = {}
    for name, body in functions(disassembly.splitlines()).items():
        found[name] = _count(body)
    for name, registers, stack, shared, local in _USAGE.findall(usage):
        kernel = found.setdefault(name, _count([]))
        kernel |= {
            "registers": float(registers),
            "stack_bytes": float(stack) + float(local),
            "static_shared_bytes": float(shared),
        }
    for kernel in found.values():
        spilled = kernel["stack_locals"] > 0 and kernel["indexed_locals"] == 0
        kernel["spill_bytes"] = kernel.get("stack_bytes", 0.0) if spilled else 0.0
    return found


def functions(lines: Iterable[str]) -> dict[str, list[Instruction]]:
    """Machine code by function."""
    found: dict[str, list[Instruction]] = {}
    body: list[Instruction] = []
    for line in lines:
        head = _HEAD.match(line)
        if head:
            body = found.setdefault(head[1], [])
            continue
        match = _LINE.search(line)
        if match:
            target = _BRANCH.search(match[4].strip()) if match[3].startswith("BRA") else None
            body.append(
                Instruction(
                    int(match[1], 16), match[3], (match[2] or "") + match[4], int(target[1], 16) if target else None
                )
            )
    return found


def _count(body: Sequence[Instruction]) -> Kernel:
    total: Kernel = dict.fromkeys(
        ("instructions", "tensor_instructions", "float64_instructions", "memory_instructions", "local_instructions",
         "stack_locals", "indexed_locals", "global_loads", "wide_loads", "loaded_bytes",
         "predicated_loads", "looped_loads", "atomics", "shared_instructions",
         "barrier_instructions"), 0.0,
    )  # fmt: skip
    for found, weight in zip(body, weights(body), strict=True):
        parts = found.name.split(".")
        base = parts[0]
        if base == "NOP" or (base == "BRA" and found.target == found.address):
            continue
        total["instructions"] += weight
        total["tensor_instructions"] += weight * (base in TENSOR)
        total["float64_instructions"] += weight * (base in DOUBLE or (base.startswith("F2F") and "F64" in parts))
        total["memory_instructions"] += weight * (base in MEMORY)
        total["atomics"] += weight * (base in ("ATOM", "ATOMG", "RED", "REDG", "REDUX_ATOM"))
        total["shared_instructions"] += weight * (base in ("LDS", "STS", "LDSM", "STSM", "ATOMS"))
        total["barrier_instructions"] += weight * (base == "BAR")
        if base in ("LDG", "LDGSTS", "UBLKCP", "UTMALDG"):
            total["global_loads"] += weight
            total["wide_loads"] += weight * ("128" in parts or base in ("UBLKCP", "UTMALDG"))
            total["loaded_bytes"] += weight * next((size for suffix, size in SIZES if suffix in parts), 4)
            total["predicated_loads"] += weight * found.operands.startswith("@")
            total["looped_loads"] += weight > 1
        if base in ("LDL", "STL"):
            total["local_instructions"] += weight
            total["stack_locals" if re.search(r"\[R1(\+|\])", found.operands) else "indexed_locals"] += weight
    return total
