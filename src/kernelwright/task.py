# SPDX-License-Identifier: Apache-2.0
"""What must be computed: the reference, the input space, and the contract a replacement must keep."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kernelwright import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a replacement must keep, and the precision it may lose. The judge enforces all of it; nothing else does.

    The defaults are the strict ones: no more than one bit lost against eager, both measured against a
    float64 oracle; inputs unchanged; weights may change between calls; strided and offset inputs allowed.
    """

    bits_lost: float = 1.0
    """log2 of (candidate's error / eager's own error), per output, RMS and max; at most this."""
    gradients: bool = False
    """Also check gradients with respect to every parameter that requires one and every floating input, or those that
    ``get_inputs`` marks by ``requires_grad`` where it marks some."""
    frozen_parameters: bool = False
    """True: weights never change after construction, so folding them ahead of time is allowed."""
    training: bool = False
    """True: the module is judged in train() mode; False: in eval() mode."""
    both_modes: bool = False
    """True: also judged in the other of train() and eval(), switched after construction and back. False: where the
    reference answers alike in both, the candidate must too."""
    as_drawn: tuple[int, ...] = ()
    """Positions of tensor inputs that callers only ever give as ``get_inputs`` draws them: unit quaternions,
    probabilities. Their values are never changed, and the proof says so; nothing looks at them at run time."""
    mutates: tuple[int, ...] = ()
    """Positions of tensor inputs (depth-first order) that the reference writes to; all others must stay unchanged."""
    aliases: tuple[tuple[int, int], ...] = ()
    """(output position, input position) pairs that share storage in the reference and must in the candidate."""
    layouts: tuple[str, ...] = ("contiguous", "strided", "offset")
    """Input layouts that must work: contiguous, strided (non-unit steps, and rows further apart than they are long),
    transposed, offset (misaligned storage)."""
    any_address: bool = False
    """True: ``offset`` must work on a GPU too. False: there, what fails on it alone is granted for inputs that begin at
    multiples of 16 bytes, and that is reported."""
    free_strides: bool = False
    """True: outputs may be laid out in any order. False: row-major, or as the reference lays them out."""
    zero_size: bool = False
    """True: every axis at size 0 must work, where it does for the reference. False: that is tried, and what fails is
    reported as outside the proven space."""
    scales: tuple[float, ...] = (1.0, 1e-3, 1e3)
    """Factors on floating inputs at which the contract must also hold, where the reference itself stays finite."""
    special_values: bool = False
    """True: NaN, +-Inf, -0.0 and denormals in the inputs must give the reference's pattern."""
    random: bool = False
    """True: the reference draws random numbers; outputs are compared as distributions."""
    deterministic: bool = False
    """True: repeated calls on equal inputs must agree bit for bit. Always measured and reported."""
    index_outputs: tuple[tuple[int, int], ...] = ()
    """(output position, input position): this integer output indexes that input; compare the values it points at."""
    autocast: bool = False
    """True: must also agree under torch.autocast(bfloat16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One point of the input space: a binding of the task's axes."""

    name: str
    axes: tuple[tuple[str, int], ...] = ()
    """(axis name, size) pairs handed to ``get_inputs`` and ``get_init_inputs`` as keywords; empty: call with none."""
    timed: bool = False
    """The case the speedup is measured on (exactly one per task, or the first)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem as data. ``reference`` is source text in KernelBench form; sources travel, never live objects."""

    name: str
    form: str
    """``kernelbench`` (one raw file), ``folder`` (task.toml, reference.py, decoys.py) or ``object`` (from Python)."""
    reference: str
    """Source text that defines ``entry`` (an ``nn.Module`` class), ``get_inputs`` and ``get_init_inputs``."""
    entry: str = "Model"
    decoys: str = ""
    """Source text of known-wrong programs: every class in it that is an ``nn.Module`` must be rejected."""
    cases: tuple[Case, ...] = (Case(name="main", timed=True),)
    contract: Contract = Contract()
    imports: tuple[str, ...] = ()
    """Folders put on ``sys.path`` of the judge and of the baselines while the reference is loaded."""
    beside: tuple[tuple[str, str], ...] = ()
    """(relative path, text) of modules that the reference imports from beside it. Whoever executes it writes them to a
    folder of its own; ``imports`` is empty until then."""
    raw: tuple[tuple[str, str], ...] = ()
    """(relative path, sha256) of the original files, kept so that an imported suite exports byte-equal."""

    def __post_init__(self) -> None:
        """Raises ValueError for a module beside it that would lie outside the folder it is written to."""
        for name, _ in self.beside:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise ValueError(f"{name!r} is not a plain relative path")

    def digest(self) -> str:
        """Identity by content: reference, modules beside it, decoys, cases and contract. The name and origin do not
        count, but for the folders it imports from: what lies there may be another file of the same name."""
        beside = (self.beside,) if self.beside else (self.imports,) if self.imports else ()
        return wire.digest(self.reference, self.entry, self.decoys, self.cases, self.contract, *beside)

    def timed_case(self) -> Case:
        """The case the headline is measured on."""
        return next((case for case in self.cases if case.timed), self.cases[0])


def by_position(given: object, signature: inspect.Signature, *, alone: bool = False) -> list[Any]:
    """What ``get_inputs`` returned as the positional arguments of one call with this signature.

    A list or tuple is that already; a dict whose keys are all parameters is taken for keywords, and so is the dict of
    an ``[arguments, keywords]`` pair; anything else is one argument. A parameter left out before one that is given
    gets its default. Raises TypeError where such a call is none, and for parameters taken by keyword only unless
    ``alone``: these then follow the others.
    """
    items = list(given) if isinstance(given, list | tuple) else [given]
    if keywords := _named(given, signature):
        items = []
    elif len(items) == 2 and isinstance(items[0], list | tuple) and (keywords := _named(items[1], signature)):
        items = list(items[0])
    if not keywords:
        return items
    parameters = signature.parameters
    odd = [name for name in keywords if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
    if odd and not alone:
        raise TypeError(f"{', '.join(odd)} can be given by keyword only")
    bound = signature.bind(*items, **keywords)
    names = list(parameters)
    last = max(names.index(name) for name in bound.arguments)
    bound.apply_defaults()
    return [bound.arguments[name] for name in names[: last + 1]]


def _named(given: object, signature: inspect.Signature) -> Mapping[str, Any]:
    """A dict that names parameters; an empty one where this is none."""
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {name for name, parameter in signature.parameters.items() if parameter.kind in plain}
    return given if isinstance(given, Mapping) and all(name in names for name in given) else {}
