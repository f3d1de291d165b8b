# SPDX-License-Identifier: Apache-2.0
"""The C++ structures of a program, with their parameter spaces, and the candidate of one choice of values."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.candidate import Candidate
from kernelwright.proposers import Request, Structure
from kernelwright.proposers.templates import cpp_double, cpp_fold, cpp_half, cpp_plain, cpp_window, module
from kernelwright.proposers.templates.cpp import Kernel, Knobs
from kernelwright.proposers.templates.cpp_expr import NotEmittable
from kernelwright.proposers.templates.cpp_math import FLOATS, head
from kernelwright.proposers.templates.cpp_strided import Strided
from kernelwright.proposers.templates.graph import Capture
from kernelwright.proposers.templates.ir import F32, F64, Call, Fused, Program
from kernelwright.tuning import Parameter, Space

ALONE, AMONG = 0.4, 0.55
"""Time relative to eager that one kernel for all is expected to take, and kernels between calls that stay torch's."""


def structures(program: Program) -> list[Structure]:
    """At most one: the whole program as C++ regions between torch calls. Empty if a region has no C++."""
    name, note = _shape(program)
    try:
        _sources(program, Knobs.of({}))
    except NotEmittable:
        return []
    large = max((f.sample[0] * f.sample[1] for f in program.regions()), default=0)
    order = ALONE if len(program.steps) == 1 else AMONG
    return [Structure(name=name, note=note, language="cpp", space=_space(program, large), order=order)]


def _shape(program: Program) -> tuple[str, str]:
    regions = list(program.regions())
    if len(program.steps) == 1 and regions:
        if regions[0].region.flat:
            return "pointwise.cpp", "one C++ pass over every element"
        return "rowwise.cpp", "one C++ kernel, a few passes over each row while it is in cache"
    calls = sum(1 for step in program.steps if isinstance(step, Call) and not step.view and step.window is None)
    if windows := len(program.windows()):
        return "windows.cpp", f"{windows} C++ windows and {len(regions)} other kernels between {calls} torch calls"
    return "segments.cpp", f"{len(regions)} C++ kernels between {calls} torch calls"


def _space(program: Program, elements: int) -> Space:
    parameters = [
        Parameter(name="width", values=(0, 8)),
        Parameter(name="threshold", values=(32768, 8192, 131072)),
    ]
    if any(True for _ in program.regions()):
        parameters.append(Parameter(name="unroll", values=(2, 4, 1)))
        parameters.append(Parameter(name="block", values=(64, 16, 256)))
    if any(not f.region.flat for f in program.regions()):
        parameters.append(Parameter(name="cache_cost", values=(6, 2, 1000)))
        parameters.append(Parameter(name="ahead", values=(True, False)))
    # 32 MB of bytes from memory to fresh pages: 9.5 ms in huge ones, 12.6 in plain ones, 16.6 past the cache; a softmax
    # of 32 MB of float64: 31.9 in huge ones, 42.8 in plain ones (2 Xeon cores).
    plain = all(cpp_plain.typed(fused.region.values) for fused in program.regions())
    huge = plain or any(fused.region.float_type == F64 for fused in program.regions())
    if elements * 4 >= 1 << 20:
        parameters.append(Parameter(name="stream", values=(not plain, plain)))
    if elements * 4 >= 4 << 20:
        pages = ("huge", "plain", "populate") if huge else ("plain", "populate", "huge")
        parameters.append(Parameter(name="pages", values=pages))
    first = {p.name: p.values[0] for p in parameters}
    text = _sources(program, Knobs.of(first))
    heard = [p for p in parameters if any(_sources(program, Knobs.of({**first, p.name: v})) != text for v in p.values)]
    return Space(parameters=tuple(heard), constraints=())


def _sources(program: Program, knobs: Knobs) -> str:
    """Once for each float type in use: its vectors, and the regions that compute in it."""
    return "\n".join([head(knobs.width), _of_floats(program, knobs), _of_doubles(program, knobs)])


def _of_floats(program: Program, knobs: Knobs) -> str:
    regions = [(number, fused) for number, fused in enumerate(program.regions()) if fused.region.float_type == F32]
    if not regions and not program.windows():
        return ""
    parts = ["namespace kw_floats {", FLOATS]
    if cpp_half.needed(program):
        parts.append(cpp_half.PRELUDE)
    parts += _regions(program, regions, knobs)
    for number, call in enumerate(program.windows()):
        assert call.window is not None
        parts += [cpp_window.PRELUDE] * (number == 0)
        parts.append(cpp_window.source(f"kw_window{number}", call.window, knobs.threshold))
    return "\n".join([*parts, "}"])


def _of_doubles(program: Program, knobs: Knobs) -> str:
    regions = [(number, fused) for number, fused in enumerate(program.regions()) if fused.region.float_type == F64]
    if not regions:
        return ""
    return "\n".join(["namespace kw_doubles {", cpp_double.DOUBLES, *_regions(program, regions, knobs), "}"])


def _regions(program: Program, regions: list[tuple[int, Fused]], knobs: Knobs) -> list[str]:
    """The functions of some regions, after what they use."""
    parts = []
    if any(cpp_fold.needed(fused.region) for _, fused in regions):
        parts.append(cpp_fold.PRELUDE)
    if any(cpp_plain.typed(fused.region.values) for _, fused in regions):
        parts.append(cpp_plain.PRELUDE)
    for number, fused in regions:
        plain = cpp_plain.typed(fused.region.values)
        kernel = cpp_plain.Plain if plain else Strided if fused.region.strided else Kernel
        types = cpp_half.types(program, fused.inputs), tuple(t.dtype for t in fused.outputs)
        parts.append(kernel(f"kw_region{number}", fused.region, knobs, types).source())
    return parts


def render(
    program: Program,
    capture: Capture,
    structure: str,
    values: Mapping[str, int | float | str | bool],
    request: Request,
) -> Candidate:
    """The candidate: ``optimized.py`` and ``kernels.cpp``."""
    if structure != _shape(program)[0]:
        raise KeyError(structure)
    task = request.task
    return Candidate(
        task=task.digest(), language="cpp", entry="optimized.py::ModelNew",
        sources=(
            ("kernels.cpp", _sources(program, Knobs.of(values))),
            ("optimized.py", module.source(task.reference, task.entry, program, capture, "kernels.so")),
        ),
        tunables=tuple(sorted(values.items())), proposer=f"templates.{structure}", note=_shape(program)[1],
    )  # fmt: skip
