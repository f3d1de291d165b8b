# SPDX-License-Identifier: Apache-2.0
"""What the compiler made of a CPU candidate: packed and scalar arithmetic, widths, gathers, divisions, library calls.

Read from ``objdump -d`` of the candidate's own shared objects, each instruction weighted by its loop depth.
"""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

from kernelwright import sandbox
from kernelwright.judge.profile.loops import Instruction, weights

LIMITS = sandbox.Limits(seconds=60.0, memory_bytes=2 << 30, processes=64, file_bytes=1 << 20, output_bytes=64 << 20)
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(?:(?:lock|rep|repz|bnd|notrack|data16|cs)\s+)*(\S+)\s*(.*)$")
_TARGET = re.compile(r"^(?:\*)?([0-9a-f]+) <([^>]*)>")
_ARITHMETIC = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|min|max|rcp\w*?|rsqrt\w*?|fn?m(?:add|sub)(?:add|sub)?\d{3}|round|rndscale|scalef"
    r"|addsub|hadd|u?comi|cmp(?:n?(?:eq|lt|le|gt|ge)|(?:un)?ord|true|false)?(?:_\w+?)?)(ps|pd|ph|ss|sd|sh)$"
)
_DIVISION = re.compile(r"v?(?:div|sqrt)(?:ps|pd|ss|sd|ph|sh)$")
_INSERTION = re.compile(r"v?(?:insertps|pinsr[dq])$")
"""Lanes loaded one by one: what a compiler makes of strided access where it holds gathers to be slow."""
_MATH = re.compile(
    r"(?:__)?(?:exp2?|expm1|log(?:2|10|1p)?|pow|tanh?|sinh?|cosh?|atan2?|asin|acos|erfc?|cbrt|fmod|hypot|[lt]gamma)f?"
    r"(?:_finite)?(?:@.*)?$"
)
_RUNTIME = ("_init", "_fini", "_start", "frame_dummy", "register_tm_clones", "deregister_tm_clones", "__do_global")
WIDTHS = (("%zmm", 512.0), ("%ymm", 256.0), ("%xmm", 128.0))
NOTABLE = 0.02
"""Share of the packed arithmetic that must be this wide for the width to count as used."""


def machine_bits(cpuinfo: Path = Path("/proc/cpuinfo")) -> float:
    """Width of the processor's vectors."""
    text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    if re.search(r"\bavx512f\b", text):
        return 512.0
    return 256.0 if re.search(r"\bavx\b", text) else 128.0


def facts(folder: Path) -> tuple[dict[str, float], list[str]]:
    """(facts, notes) of every ``.so`` in ``folder``; no facts and a note where nothing can be read."""
    objects = sorted(folder.rglob("*.so"))
    if not objects:
        return {}, ["no compiled object belongs to this candidate"]
    if platform.machine() not in ("x86_64", "AMD64"):
        return {}, [f"compiled code of {platform.machine()} is not counted"]
    tool = shutil.which("objdump")
    if tool is None:
        return {}, ["compiled code was not read: objdump is not installed"]
    total: dict[str, float] = {}
    for path in objects:
        done = sandbox.run(
            [tool, "-d", "--no-show-raw-insn", "--section=.text", str(path)],
            limits=LIMITS, readable=(folder,), cwd=folder,
        )  # fmt: skip
        if done.returncode != 0:
            return {}, [f"compiled code was not read: objdump: {done.stderr.strip()[:200]}"]
        for name, value in counts(done.stdout).items():
            total[name] = total.get(name, 0.0) + value
    return summary(total) | {"machine_bits": machine_bits()}, []


def functions(text: str) -> dict[str, list[Instruction]]:
    """Disassembly by function, the C runtime's own left out."""
    found: dict[str, list[Instruction]] = {}
    body: list[Instruction] = []
    for line in text.splitlines():
        head = _FUNCTION.match(line)
        if head:
            body = []
            if not head[1].startswith(_RUNTIME) and "@plt" not in head[1]:
                found[head[1]] = body
            continue
        match = _LINE.match(line)
        if match:
            address, name, operands = int(match[1], 16), match[2], match[3]
            target = _TARGET.match(operands) if name.startswith("j") else None
            body.append(Instruction(address, name, operands, int(target[1], 16) if target else None))
    return found


def counts(text: str) -> dict[str, float]:
    """Weighted counts over all functions of one object's disassembly.

    Arithmetic counts where a function's loops are deepest: what is left over beside a vector loop is written out as
    scalar code around it, many times as long and seldom run.
    """
    names = ("packed", "scalar", "gathers", "divisions", "calls", *(f"{kind}{bits:.0f}" for kind in ("bits", "moved")
             for _, bits in WIDTHS))  # fmt: skip
    total = dict.fromkeys(names, 0.0)
    for body in functions(text).values():
        weighed = list(zip(body, weights(body), strict=True))
        deepest = max((weight for found, weight in weighed if _ARITHMETIC.match(found.name)), default=0)
        for found, weight in weighed:
            bits = next((width for register, width in WIDTHS if register in found.operands), 0.0)
            kind = _ARITHMETIC.match(found.name)
            if weight > 1 and bits > 128.0:
                total[f"moved{bits:.0f}"] += weight
            if kind and weight == deepest:
                packed = kind[1] in ("ps", "pd", "ph")
                total["packed" if packed else "scalar"] += weight
                if packed:
                    total[f"bits{bits or 128.0:.0f}"] += weight
            if _DIVISION.match(found.name) and weight == deepest:
                total["divisions"] += weight
            if found.name.startswith("vgather") or (_INSERTION.match(found.name) and "(" in found.operands):
                total["gathers"] += weight
            if found.name.startswith("call") and weight > 1:
                called = _TARGET.match(found.operands)
                total["calls"] += weight if called and _MATH.match(called[2]) else 0.0
    return total


def summary(total: dict[str, float]) -> dict[str, float]:
    """The counts by the names that the rules use. Without packed arithmetic the width is that of whatever else (moves,
    integers) runs in loops: a program that only copies or selects has vectors too."""
    kind = "bits" if total["packed"] else "moved"
    every = sum(total[f"{kind}{bits:.0f}"] for _, bits in WIDTHS)
    wide = [bits for _, bits in WIDTHS if total[f"{kind}{bits:.0f}"] > NOTABLE * every]
    return {
        "packed_instructions": total["packed"],
        "floating_instructions": total["packed"] + total["scalar"],
        "widest_bits": max(wide, default=0.0),
        "gather_instructions": total["gathers"],
        "division_instructions": total["divisions"],
        "math_calls": total["calls"],
    }
