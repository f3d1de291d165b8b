# SPDX-License-Identifier: Apache-2.0
"""Cuts a captured graph into fused regions and torch calls: every operation joins the latest region it can."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.proposers.templates import (
    calls,
    cpp_plain,
    gathers,
    integers,
    items,
    losses,
    norms,
    promotion,
    rules,
    scans,
    windows,
)
from kernelwright.proposers.templates.graph import Capture, NotCaptured, size_text
from kernelwright.proposers.templates.graph import tensor as describe
from kernelwright.proposers.templates.ir import F32, F64, I64, Call, Fused, Program, Tensor
from kernelwright.proposers.templates.items import Item
from kernelwright.proposers.templates.space import Growing, Handle, Logical, NotFusible
from kernelwright.proposers.templates.transplant import transplant

RULES = rules.RULES | integers.RULES | norms.RULES | losses.RULES | scans.RULES | gathers.RULES
_PAIRED = (torch.float32, torch.float64)
_ALIASES = frozenset({"clone", "contiguous", "detach", "alias", "lift_fresh_copy", "dropout"})
_RESHAPES = frozenset("unsqueeze squeeze squeeze.dim squeeze.dims view reshape _unsafe_view".split())


@dataclass
class Lowering:
    """The walk over one graph. ``emit_*`` and the operand methods are what the rules use."""

    capture: Capture
    items: dict[torch.fx.Node, Item] = field(default_factory=dict)
    texts: dict[torch.fx.Node, str] = field(default_factory=dict)
    """Nodes that are numbers: sizes and what is computed from them."""
    numbers: dict[torch.fx.Node, torch.Tensor] = field(default_factory=dict)
    """Nodes that are tensors of one number and no dimension, written out in ``forward``."""
    regions: list[Growing] = field(default_factory=list)
    calls: list[tuple[int, Call]] = field(default_factory=list)
    groups: dict[torch.fx.Node, list[Item]] = field(default_factory=dict)
    """Nodes that stand for several tensors already known."""
    here: Growing | None = None
    """The region that the current rule emits into."""

    on_host: bool = True
    """Whether the program will run where it was traced."""
    number: dict[torch.fx.Node, int] = field(default_factory=dict)
    """Position of each node in the graph: the tensor's name."""
    compounds: dict[torch.fx.Node, scans.Compound] = field(default_factory=dict)
    waiting: set[torch.fx.Node] = field(default_factory=set)
    """Inner nodes of compounds: computed only where the compound turns out not to fit."""

    def run(self) -> Program:
        """The whole program. Raises NotCaptured where an operation cannot even be called."""
        self.number = {node: position for position, node in enumerate(self.capture.graph.nodes)}
        for node, source in self.capture.sources.items():
            self.items[node] = Item(source.tensor, 0)
        for node, value in self.capture.literals.items():
            self._literal(node, value)
        self.compounds = scans.compounds(self.capture.graph) | gathers.bags(self.capture.graph)
        self.waiting = set().union(*(compound.inner for compound in self.compounds.values()))
        for node in self.capture.graph.nodes:
            if node in self.compounds:
                self._compound(node, self.compounds[node])
            elif node.op == "call_function" and node not in self.waiting:
                self._visit(node)
            elif node.op not in ("placeholder", "output", "call_function"):
                raise NotCaptured(f"the graph holds a {node.op}")
        results = []
        for node in self.capture.results:
            item = self.items.get(node)
            if item is None or (item.home is None and item.level == 0):
                raise NotCaptured("the reference returns one of its inputs")
            results.append(self.materialise(item).name)
        steps: list[tuple[int, int, Call | Fused]] = [(level, 0, call) for level, call in self.calls]
        steps += [(region.level, 1, region.finish()) for region in self.regions if region.outputs]
        steps.sort(key=lambda step: step[:2])
        return Program(
            sources=tuple(self.capture.sources.values()), steps=tuple(step for _, _, step in steps),
            results=tuple(results), returns=self.capture.returns, arguments=self.capture.arguments,
            constants=self.capture.constants, symbols=self.capture.symbols, guards=self.capture.guards,
            nested=self.capture.nested, reached=self.capture.reached,
        )  # fmt: skip

    def _literal(self, node: torch.fx.Node, value: torch.Tensor) -> None:
        """A tensor that ``forward`` writes out: a number in regions, and made again for torch's own operations."""
        if value.dim() == 0:
            self.numbers[node] = value
            return
        if not self.on_host:
            raise NotCaptured("a constant tensor has no device to be made on")
        out = self._tensor(node)
        self.calls.append((1, Call(output=out, target="constant", operands=(), expression=calls.tensor_text(value))))
        self.items[node] = Item(out, 1)

    def _visit(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, int, torch.SymFloat, torch.SymBool)):
            if not isinstance(value, (torch.SymInt, int)):
                raise NotCaptured("a size became a fraction")
            self.texts[node] = size_text(value)
            return
        name = str(node.target)
        if name.startswith("aten._assert") or name.startswith("aten.sym_constrain"):
            return
        base = name.removeprefix("aten.").removesuffix(".default")
        if base in _ALIASES and self._alias(node, base):
            return
        if base == "broadcast_tensors" and self._same_shapes(node):
            return
        if node.target is operator.getitem and node.args[0] in self.groups:
            if node.users:  # an item that nobody takes may be one that was not made
                self.items[node] = self.groups[node.args[0]][node.args[1]]  # type: ignore[index]
            return
        if isinstance(value, (tuple, list)) and self._first_of(node, base):
            return
        if base in _RESHAPES and isinstance(value, torch.Tensor) and self._lazy_view(node):
            return
        rule = RULES.get(base)
        if rule is not None and isinstance(value, torch.Tensor) and promotion.kind(value.dtype):
            if self._fuse(node, rule):
                return
        self._call(node)

    def _compound(self, node: torch.fx.Node, compound: scans.Compound) -> None:
        """Several nodes as one operation; where it does not fit, each for itself."""
        sources = [compound.source, *compound.others]
        if all(source in self.items for source in sources) and self._fuse(node, compound.rule, sources):
            return
        self.waiting -= compound.inner
        for inner in sorted(compound.inner, key=self.number.__getitem__):
            self._visit(inner)
        self._visit(node)

    def _alias(self, node: torch.fx.Node, base: str) -> bool:
        """Copies and dropout outside training are the value itself inside a program that mutates nothing."""
        if base == "dropout" and node.args[2]:
            return False
        source = node.args[0]
        if source in self.numbers:
            self.numbers[node] = self.numbers[source]  # type: ignore[index]
            return True
        if node.kwargs.get("memory_format") is not None or source not in self.items:
            return False
        item = self.items[source]  # type: ignore[index]
        if node in self.capture.results and (item.level == 0 or (item.home is None and base != "dropout")):
            return False  # what is returned has memory of its own, in the order that was asked for
        self.items[node] = item
        return True

    def _lazy_view(self, node: torch.fx.Node) -> bool:
        """A view of something in memory that adds or drops dimensions of size 1: made only where torch reads it."""
        item = self.items.get(node.args[0])  # type: ignore[arg-type]
        if item is None or item.home is not None:
            return False
        tensor = self._tensor(node)
        if [s for s in tensor.shape if s != "1"] != [s for s in item.tensor.shape if s != "1"]:
            return False
        self.items[node] = Item(tensor, item.level + 1, base=item.base or item, view=node)
        return True

    def _same_shapes(self, node: torch.fx.Node) -> bool:
        """Broadcasting tensors of one shape changes nothing (the losses do it to their operands)."""
        tensors = node.args[0]
        assert isinstance(tensors, (list, tuple))
        if len({self.shape(t) for t in tensors}) != 1:  # type: ignore[arg-type]
            return False
        self.groups[node] = [self.items[t] for t in tensors]  # type: ignore[index]
        return True

    def _first_of(self, node: torch.fx.Node, base: str) -> bool:
        """An operation with several results of which only the first is read: the values of a maximum, say."""
        rule = RULES.get(base)
        used = {user.args[1] if user.target is operator.getitem else None for user in _read(node)}
        if rule is None or used != {0} or node.meta["val"][0].dtype not in _PAIRED or not self._fuse(node, rule):
            return False
        self.groups[node] = [self.items[node]]
        return True

    def _fuse(self, node: torch.fx.Node, rule: rules.Rule, sources: list[torch.fx.Node] | None = None) -> bool:
        sources = node.all_input_nodes if sources is None else sources
        read = [self.items[n] for n in sources if n in self.items]
        homes = [item.home for item in read]
        names = {(item.base or item).tensor.name for item in read}
        homes += [region for region in self.regions if names & set(region.inputs)]
        candidates = sorted({id(h): h for h in homes if h is not None}.values(), key=lambda h: -h.level)
        real = promotion.real(node)
        for region in candidates:
            if real in ("", region.float_type) and self._join(node, rule, region):
                return True
        over = [self._tensor(node)] if rule in gathers.OF_RESULT else [item.tensor for item in read]
        fresh = norms.cut_in_groups(node, items.fresh(read, over, real or F32))
        if fresh is not None and self._join(node, rule, fresh):
            self.regions.append(fresh)
            return True
        return False

    def _join(self, node: torch.fx.Node, rule: rules.Rule, region: Growing) -> bool:
        saved = region.snapshot()
        self.here = region
        try:
            handle = rule(self, node)
            self._check(node, handle, region)
        except NotFusible:
            region.restore(saved)
            return False
        self.items[node] = Item(self._tensor(node), region.level, region, handle)
        return True

    def _check(self, node: torch.fx.Node, handle: Handle, region: Growing) -> None:
        """The rule's idea of the result's shape must be torch's own."""
        shape = self._tensor(node).shape
        if len(shape) != len(handle.logical):
            raise NotFusible("rank differs")
        for size, axis in zip(shape, handle.logical, strict=True):
            if size != ("1" if axis is None else region.size(axis)):
                raise NotFusible("shape differs")
        if region.own(promotion.KINDS.get(self._tensor(node).dtype, "")) != region.values[handle.value].dtype:
            raise NotFusible("type differs")
        if self.on_host and not cpp_plain.has_text(region):
            raise NotFusible("no code for this in these types")

    def _tensor(self, node: torch.fx.Node) -> Tensor:
        value = node.meta["val"]
        return describe(f"t{self.number[node]}", value[0] if isinstance(value, (tuple, list)) else value)

    def is_tensor(self, arg: Any) -> bool:
        """Whether an argument of a node is a tensor rather than a number."""
        return isinstance(arg, torch.fx.Node) and arg in self.items

    def shape(self, arg: torch.fx.Node) -> tuple[str, ...]:
        """Sizes of a tensor argument as texts."""
        return self.items[arg].tensor.shape

    def shape_of(self, node: torch.fx.Node) -> tuple[str, ...]:
        """Sizes of a node's result as texts, before it has an item."""
        return self._tensor(node).shape

    def operands(self, *args: Any) -> list[Handle]:
        """Arguments that broadcast together, as handles of the current region."""
        assert self.here is not None
        known = [self._inside(arg) for arg in args]
        rank = max((len(self.shape(a)) for a in args if self.is_tensor(a)), default=0)
        frame: list[int | None] = [None] * rank
        for handle in known:
            if handle is not None:
                for offset, axis in enumerate(reversed(handle.logical)):
                    frame[rank - 1 - offset] = axis if axis is not None else frame[rank - 1 - offset]
        sizes = ["1"] * rank
        for arg in args:
            if self.is_tensor(arg):
                for offset, size in enumerate(reversed(self.shape(arg))):
                    sizes[rank - 1 - offset] = size if size != "1" else sizes[rank - 1 - offset]
        target = self._align(sizes, frame)
        return [h if h is not None else self._outside(arg, target) for h, arg in zip(known, args, strict=True)]

    def vector(self, arg: Any, logical: Logical) -> Handle:
        """A tensor with one dimension that has a size, placed along the axis that ``logical`` names."""
        assert self.here is not None
        if not self.is_tensor(arg):
            raise NotFusible("a tensor is needed")
        (axis,) = (a for a in logical if a is not None)
        item = self.items[arg]
        if item.tensor.shape != (self.here.size(axis),):
            raise NotFusible("another length than the axis")
        if item.home is self.here and item.handle is not None:
            return Handle(item.handle.value, logical) if item.handle.logical == (axis,) else _no("another axis")
        return Handle(self._outside(arg, (axis,)).value, logical)

    def placed(self, arg: torch.fx.Node, logical: Logical) -> Handle:
        """A tensor from outside whose dimensions run along known axes."""
        return self._outside(arg, logical) if self.items[arg].home is not self.here else _no("made here")

    def table(self, arg: torch.fx.Node) -> str:
        """The name of a tensor in memory that the region reads in an order of its own."""
        assert self.here is not None
        item = self.items[arg]
        base = item.base or item
        kept = promotion.KINDS.get(item.tensor.dtype)
        if base.level >= self.here.level or kept not in (self.here.float_type, I64):
            raise NotFusible("it is ready too late, or of another type")
        return self.materialise(base).name

    def _inside(self, arg: Any) -> Handle | None:
        assert self.here is not None
        if isinstance(arg, (bool, int, float)):
            return self.here.const(float(arg))
        if isinstance(arg, torch.fx.Node) and arg in self.texts:
            return self.here.scalar(f"float({self.texts[arg]})")
        if isinstance(arg, torch.fx.Node) and arg in self.numbers:
            return self.here.const(float(self.numbers[arg]))
        if not self.is_tensor(arg):
            raise NotFusible("an argument is neither tensor nor number")
        item = self.items[arg]
        return item.handle if item.home is self.here else None

    def _align(self, sizes: list[str], frame: list[int | None]) -> Logical:
        """An axis for each dimension that has a size; those already known stay, the others must be unambiguous."""
        assert self.here is not None
        n = len(self.here.sizes)
        out = list(frame)
        wanted = [d for d, size in enumerate(sizes) if size != "1"]
        proposal: dict[int, int] = {}
        if len(wanted) == n:
            proposal = dict(zip(wanted, range(n), strict=True))
        elif self.here.merged and any(out[d] is None for d in wanted):
            proposal = dict(zip(wanted, self.here.regroup(list(range(n)), (sizes[d] for d in wanted)), strict=True))
        elif any(out[d] is None for d in wanted):
            raise NotFusible("unclear which axis a dimension runs along")
        for d in wanted:
            out[d] = out[d] if out[d] is not None else proposal[d]
            axis = out[d]
            if axis is None or self.here.size(axis) != sizes[d] or (proposal and proposal[d] != axis):
                raise NotFusible("sizes disagree")
        return tuple(out)

    def _outside(self, arg: torch.fx.Node, target: Logical) -> Handle:
        """A tensor of another region is recomputed here where that is cheap, else read from memory."""
        assert self.here is not None
        item = self.items[arg]
        tail = target[len(target) - len(item.tensor.shape) :]
        logical = tuple(None if size == "1" else axis for size, axis in zip(item.tensor.shape, tail, strict=True))
        plain = item.home is not None and self.on_host and cpp_plain.typed(item.home.values)
        if item.home is not None and item.handle is not None and not plain:
            both = zip(item.handle.logical, logical, strict=True)
            pairs = [(a, b) for a, b in both if a is not None and b is not None]
            saved = self.here.snapshot()
            try:
                late = {i.tensor.name for i in self.items.values() if i.level + (i.home is not None) > self.here.level}
                return Handle(transplant(item.home, item.handle.value, pairs, self.here, late), logical)
            except NotFusible:
                self.here.restore(saved)
        base = item.base or item
        if base.level >= self.here.level or item.tensor.dtype not in promotion.KINDS:
            raise NotFusible("it is ready too late, or of another type")
        kept = promotion.KINDS[item.tensor.dtype]
        short = item.tensor.dtype.endswith("float16") and self.on_host
        if (kept == F64 and self.here.float_type == F32) or (short and self.here.float_type == F64):
            raise NotFusible("a float that is too wide or too short")
        return self.here.external(self.materialise(base).name, logical, self.here.own(kept))

    def materialise(self, item: Item) -> Tensor:
        """The tensor in memory: a region's value becomes one of its outputs, a pending view is made."""
        if item.view is not None:
            node, item.view = item.view, None
            self._call(node, item)
        if item.home is not None and item.handle is not None:
            try:
                item.home.output(item.handle, item.tensor)
            except NotFusible as reason:
                raise NotCaptured(f"a value cannot leave its region: {reason}") from reason
        return item.tensor

    def _call(self, node: torch.fx.Node, made: Item | None = None) -> None:
        """Keep the operation as torch has it; ``made`` is the item of a view that was waiting."""
        value = node.meta.get("val")
        inputs = [self.items[n] for n in node.all_input_nodes if n in self.items]
        level = 1 + max((item.level for item in inputs), default=0)
        names = tuple(self.materialise(item).name for item in inputs)
        known = {n: item.tensor.name for n, item in self.items.items()} | self.texts
        known |= {n: calls.tensor_text(value) for n, value in self.numbers.items()}
        if isinstance(value, torch.Tensor):
            out = self._tensor(node)
        else:
            out = Tensor(name=f"t{self.number[node]}", shape=(), sample=(), dtype="tuple")
        optional = tuple(
            self.items[a].tensor.name if isinstance(a, torch.fx.Node) and a in self.items else ""
            for a in node.args
            if a is None or self.is_tensor(a)
        )
        operands = optional if set(filter(None, optional)) == set(names) else names
        windowed = out.dtype == "float32" or (not self.on_host and out.dtype in windows.TYPES)
        call = calls.kept(node, out, operands, known, on_host=self.on_host, windowed=windowed)
        self.calls.append((level, call))
        self.items[node] = made or Item(out, level)
        self.items[node].level = level


def _read(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes that use a result; an item of a tuple that nobody takes is not read."""
    return [user for user in node.users if user.users or user.target is not operator.getitem]


def _no(reason: str) -> Handle:
    raise NotFusible(reason)


def lower(capture: Capture, on_host: bool = True) -> Program:
    """The program of a captured graph. Raises NotCaptured where the whole cannot be expressed."""
    return Lowering(capture, on_host=on_host).run()
