# SPDX-License-Identifier: Apache-2.0
"""What PyTorch itself can do, as candidates: torch.compile modes, channels-last layouts, CUDA graphs.

Weights may change between calls, so nothing is frozen or folded. Imports no torch: the candidates do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.candidate import Candidate
from kernelwright.errors import CandidateError
from kernelwright.proposers import Request, Structure
from kernelwright.proposers.embed import embed, torch_candidate
from kernelwright.task import Contract
from kernelwright.tuning import Space

IMAGES = re.compile(r"conv[23]d|conv_?transpose[23]d|pool[23]d", re.IGNORECASE)

COMPILED = '''
class ModelNew({entry}):
    """{entry} through torch.compile({options}), compiled at the first call."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._compiled = None

    def forward(self, *args, **kwargs):
        if self._compiled is None:
            self._compiled = torch.compile(super().forward, {options})
        return self._compiled(*args, **kwargs)

    def __getstate__(self):
        return {{**super().__getstate__(), "_compiled": None}}  # it closes over this very module: a copy makes its own
'''

# Replays of one CUDA graph share their output memory: a result handed out must be a copy.
COMPILED_COPY = COMPILED.replace(
    "return self._compiled(*args, **kwargs)",
    "return tree_map(\n"
    "            lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf,\n"
    "            self._compiled(*args, **kwargs),\n"
    "        )",
)

CHANNELS_LAST = '''
def _nhwc(value):
    """Rank 4 and 5 floating tensors with their channels innermost; everything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() in (4, 5):
        return value.contiguous(memory_format=torch.channels_last if value.dim() == 4 else torch.channels_last_3d)
    return value


def _nchw(value):
    """Results in the reference's own layout."""
    return value.contiguous() if isinstance(value, torch.Tensor) and value.dim() in (4, 5) else value


class ModelNew({entry}):
    """{entry} with channels-last weights and activations{compiled}."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for owner in self.modules():
            for name, weight in owner.named_parameters(recurse=False):
                owner._parameters[name].data = _nhwc(weight.data)
        self._run = None

    def forward(self, *args, **kwargs):
        if self._run is None:
            self._run = {run}
        args, kwargs = tree_map(_nhwc, (args, kwargs))
        return tree_map(_nchw, self._run(*args, **kwargs))

    def __getstate__(self):
        return {{**super().__getstate__(), "_run": None}}  # it is bound to this very module: a copy makes its own
'''

GRAPHED = '''
class ModelNew({entry}):
    """{entry} recorded once per input signature as a CUDA graph and replayed; eager wherever that is not safe.

    Inputs are copied into the recorded buffers before each replay, and results are copied out after it.
    Weights are read at their own addresses: in-place updates are seen, and replaced tensors make a new recording.
    """

    _RECORDINGS = 8

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._recorded = {{}}

    def forward(self, *args, **kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        state = [*self.parameters(), *self.buffers()]
        if not self._replayable(leaves, state):
            return super().forward(*args, **kwargs)
        key = (spec, tuple(map(_signature, leaves)), tuple(tensor.data_ptr() for tensor in state), self.training)
        if key not in self._recorded:
            if len(self._recorded) >= self._RECORDINGS:
                return super().forward(*args, **kwargs)
            self._recorded[key] = self._record(leaves, spec)
        recording = self._recorded[key]
        if recording is None:
            return super().forward(*args, **kwargs)
        graph, inputs, outputs = recording
        for buffer, leaf in zip(inputs, leaves):
            if isinstance(leaf, torch.Tensor):
                buffer.copy_(leaf)
        graph.replay()
        return tree_map(_copied, outputs)

    def _replayable(self, leaves, state):
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not tensors or not all(tensor.is_cuda for tensor in tensors) or torch.cuda.is_current_stream_capturing():
            return False
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *state)):
            return False
        plain = all(isinstance(leaf, (torch.Tensor, int, float, bool, str, type(None))) for leaf in leaves)
        return plain and all(tensor.device == tensors[0].device for tensor in (*tensors, *state))

    def _record(self, leaves, spec):
        inputs = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(inputs, spec)
        before = [tensor.clone() for tensor in self.buffers()]
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    super().forward(*args, **kwargs)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = super().forward(*args, **kwargs)
        except (RuntimeError, torch.AcceleratorError):
            return None  # not capturable (synchronises, allocates pinned memory, branches on data): stay eager
        finally:
            for tensor, saved in zip(self.buffers(), before):
                tensor.copy_(saved)
        return graph, inputs, outputs

    def __getstate__(self):
        return {{**super().__getstate__(), "_recorded": {{}}}}  # graphs hold these very weights: a copy makes its own


def _signature(leaf):
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.stride(), leaf.dtype, leaf.device
    return type(leaf).__name__, leaf


def _copied(leaf):
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """One candidate of this proposer: its code and when it applies."""

    note: str
    body: str
    order: float
    imports: tuple[str, ...] = ("import torch",)
    fields: tuple[tuple[str, str], ...] = ()
    cuda_only: bool = False
    images_only: bool = False
    pure_only: bool = False
    """Not offered where the reference writes to its inputs, returns views of them, draws random numbers or trains."""


_TREE = ("import torch", "from torch.utils._pytree import tree_map")
_FLATTEN = ("import torch", "from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten")

CHOICES: Mapping[str, _Choice] = {
    "compile.default": _Choice(
        note="torch.compile, default mode", body=COMPILED, order=0.7, fields=(("options", "dynamic=False"),)
    ),
    "compile.max-autotune": _Choice(
        note="torch.compile, max-autotune without CUDA graphs",
        body=COMPILED,
        order=0.65,
        fields=(("options", 'dynamic=False, mode="max-autotune-no-cudagraphs"'),),
    ),
    "compile.reduce-overhead": _Choice(
        note="torch.compile with CUDA graphs, results copied out",
        body=COMPILED_COPY,
        order=0.6,
        imports=_TREE,
        fields=(("options", 'dynamic=False, mode="reduce-overhead"'),),
        cuda_only=True,
        pure_only=True,
    ),
    "channels-last": _Choice(
        note="channels-last weights and activations",
        body=CHANNELS_LAST,
        order=0.9,
        imports=_TREE,
        fields=(("compiled", ""), ("run", "super().forward")),
        images_only=True,
        pure_only=True,
    ),
    "channels-last.compile": _Choice(
        note="channels-last, through torch.compile",
        body=CHANNELS_LAST,
        order=0.68,
        imports=_TREE,
        fields=(
            ("compiled", ", through torch.compile"),
            ("run", "torch.compile(super().forward, dynamic=False)"),
        ),
        images_only=True,
        pure_only=True,
    ),
    "cuda-graph": _Choice(
        note="the eager kernels recorded as one CUDA graph",
        body=GRAPHED,
        order=0.8,
        imports=_FLATTEN,
        cuda_only=True,
        pure_only=True,
    ),
}


class CompilerProposer:
    """Proposes each of ``CHOICES`` that applies to the task and device; none has tunables."""

    name = "compiler"

    def structures(self, request: Request) -> list[Structure]:
        """One structure per applicable choice, in a fixed order."""
        return [
            Structure(
                name=name,
                note=choice.note,
                language="torch",
                space=Space(parameters=(), constraints=()),
                order=choice.order,
            )
            for name, choice in CHOICES.items()
            if _applies(choice, request)
        ]

    def render(self, request: Request, structure: str, values: Mapping[str, int | float | str | bool]) -> Candidate:
        """The candidate of a choice; ``CandidateError`` for an unknown name. ``values`` is empty."""
        if structure not in CHOICES:
            raise CandidateError("The compiler proposer has no such structure.", structure, ", ".join(CHOICES))
        choice, task = CHOICES[structure], request.task
        body = choice.body.format(entry=task.entry, **dict(choice.fields))
        source = embed(task, body, header=choice.note, imports=choice.imports)
        return torch_candidate(task, source, proposer=f"compiler.{structure}", note=choice.note)


def _applies(choice: _Choice, request: Request) -> bool:
    if choice.cuda_only and request.device != "cuda":
        return False
    if choice.images_only and not IMAGES.search(request.task.reference):
        return False
    return not choice.pure_only or _pure(request.task.contract)


def _pure(contract: Contract) -> bool:
    return not (contract.mutates or contract.aliases or contract.random or contract.training or contract.gradients)
