# SPDX-License-Identifier: Apache-2.0
"""What a module has that its constructor does not make: ties, hidden buffers, frozen weights, types, attributes.

Each is written down as a line that makes it, or refused: none may be lost, though the example inputs may not show it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from kernelwright.capture.same import ABSENT, difference, equal, mark, shown
from kernelwright.capture.surroundings import installed
from kernelwright.capture.values import is_plain, literal
from kernelwright.errors import TaskError


class Lost(TaskError):
    """Something of the object cannot be written down; no other way to write it would keep it."""


AMENDED = "_amended"
LARGEST = 1 << 18
"""Bytes of tensors beside the state_dict that are written into the source: it is read by people and by models."""
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_TORCHS = {*vars(torch.nn.Module()), "_compiled_call_impl", "_flat_weights", "_flat_weight_refs"}
_BY_MODE = re.compile(r"Drop|Batch_?Norm|InstanceNorm|RReLU|Attention|Transformer|RNN|LSTM|GRU")
_HOOK_ADVICE = "register it in the constructor of a class at the top level of a file, or call it in forward"


@dataclass
class Amendments:
    """Lines that make a rebuilt module what the live one is, and what they could not write."""

    lines: list[str] = field(default_factory=list)
    doubts: list[tuple[torch.nn.Module, str, object, str]] = field(default_factory=list)
    """(part, attribute, a mark of its value, words): lost, unless a call writes the attribute itself."""
    size: int = 0

    def left(self) -> str:
        """The first doubt about an attribute that the calls since have not written; or an empty string."""
        return next((why for part, name, was, why in self.doubts if mark(vars(part).get(name, ABSENT)) == was), "")


def amendments(live: torch.nn.Module, built: torch.nn.Module, text: str, make: Callable[..., str]) -> Amendments:
    """What ``built``, made by the source ``text``, lacks of ``live``; ``make`` writes a constructor call of a part.

    Raises Lost for hooks, modes and tensors that cannot be written down.
    """
    found = Amendments()
    _parts(live, built, make, found)
    mine, theirs = dict(live.named_modules(remove_duplicate=False)), dict(built.named_modules(remove_duplicate=False))
    pairs = [(path, part, theirs[path]) for path, part in mine.items() if path in theirs]
    pairs = [pair for pair in pairs if not isinstance(pair[2], torch.nn.modules.lazy.LazyModuleMixin)]
    once = {id(part): (path, part, other) for path, part, other in reversed(pairs)}
    pairs = [pair for pair in pairs if once[id(pair[1])][0] == pair[0]]
    for path, part, other in pairs:
        _hooks(path, part, other)
    _ties(live, built, found)
    for path, part, other in pairs:
        _tensors(path, part, other, found)
        _attributes(path, part, other, text, found)
    _modes(live, built, pairs)
    if found.size > LARGEST:
        raise Lost(
            "Too much of the module lies outside of its state_dict to be written down.",
            got=f"{found.size} bytes of tensors that are no part of it, and that the constructor does not make",
            expected=f"at most {LARGEST} bytes",
            what_next="make them in the constructor, or register them as persistent buffers",
        )
    return found


def hooked(module: torch.nn.Module) -> str:
    """Which hook, parametrization or rewritten forward a module has, in words; or an empty string."""
    for path, part in module.named_modules():
        where = f"{path or 'the module'} ({type(part).__name__})"
        if torch.nn.utils.parametrize.is_parametrized(part):
            return f"{where} is parametrized: {', '.join(part.parametrizations)}"
        for table in HOOKS:
            for hook in getattr(part, table).values():
                return f"{where} has {table.strip('_')}: {_named(hook)}"
    return ""


def no_hooks(got: str) -> Lost:
    """The refusal of a hook that a constructor does not register."""
    return Lost(
        "A hook or parametrization was put on the module after it was made, and cannot be written down.",
        got=got,
        expected="hooks and parametrizations that the constructor of a class registers itself",
        what_next=_HOOK_ADVICE + "; weight_norm and the like may be removed first (remove_parametrizations)",
    )


def _at(path: str) -> str:
    return f"model.get_submodule({path!r})" if path else "model"


def _owner(path: str) -> tuple[str, str]:
    above, _, name = path.rpartition(".")
    return _at(above), name


def _parts(live: torch.nn.Module, built: torch.nn.Module, make: Callable[..., str], found: Amendments) -> None:
    """Parts that were put in, replaced or shared after the module was made."""
    firsts: dict[int, str] = {}
    theirs = dict(built.named_modules(remove_duplicate=False))
    mended: list[str] = []
    for path, part in live.named_modules(remove_duplicate=False):
        first = firsts.setdefault(id(part), path)
        other = theirs.get(path)
        if not path or any(path.startswith(f"{done}.") for done in mended):
            continue
        owner, name = _owner(path)
        if first != path:
            if other is not theirs.get(first) and (part.state_dict() or _own(part)):
                found.lines.append(f"setattr({owner}, {name!r}, {_at(first)})")
                mended.append(path)
        elif other is None or not _kin(type(part), type(other)):
            found.lines.append(f"setattr({owner}, {name!r}, {make(part)})")
            mended.append(path)
    for path, part in live.named_modules(remove_duplicate=False):
        for name, child in part._modules.items():
            if child is None and getattr(theirs.get(path), "_modules", {}).get(name) is not None:
                found.lines.append(f"{_at(path)}._modules[{name!r}] = None")


def _own(part: torch.nn.Module) -> bool:
    return any(not type(inner).__module__.startswith("torch.") for inner in part.modules())


def _kin(live: type, built: type) -> bool:
    lazy = getattr(built, "cls_to_become", None)
    return live.__name__ in (built.__name__, getattr(lazy, "__name__", ""))


def _hooks(path: str, part: torch.nn.Module, other: torch.nn.Module) -> None:
    for table in HOOKS:
        mine, theirs = list(getattr(part, table).values()), list(getattr(other, table).values())
        where = f"{path or 'the module'} ({type(part).__name__}) has {table.strip('_')}"
        if len(mine) != len(theirs):
            raise no_hooks(
                f"{where}: {', '.join(map(_named, mine)) or 'none'}; its constructor registers {len(theirs)}"
            )
        for one, two in zip(mine, theirs, strict=True):
            if why := difference(one, two, _named(one)):
                raise no_hooks(f"{where}: {why}")
    for name, value in (*part._parameters.items(), *part._buffers.items()):
        kept = [getattr(value, table, None) for table in ("_backward_hooks", "_post_accumulate_grad_hooks")]
        if any(kept):
            raise no_hooks(f"{'.'.join(filter(None, (path, name)))} has hooks of its gradient")


def _named(hook: object) -> str:
    inner = getattr(hook, "hook", None) or hook  # torch wraps those of state dictionaries
    return str(getattr(inner, "__qualname__", "") or type(inner).__name__)


def _ties(live: torch.nn.Module, built: torch.nn.Module, found: Amendments) -> None:
    """Weights and buffers that are one under several names, and those that are no longer."""
    for kind in ("parameters", "buffers"):
        mine = dict(getattr(live, f"named_{kind}")(remove_duplicate=False))
        theirs = dict(getattr(built, f"named_{kind}")(remove_duplicate=False))
        firsts: dict[int, str] = {}
        held: dict[int, str] = {}
        for name, value in mine.items():
            first = firsts.setdefault(id(value), name)
            before = held.setdefault(id(theirs.get(name, value)), name)
            owner, leaf = _owner(name)
            if first != name and theirs.get(name, ABSENT) is not theirs.get(first):
                source, key = _owner(first)
                found.lines.append(f"setattr({owner}, {leaf!r}, {source}.{key})")
            elif first == name and before != name:
                loose = f"{owner}.{leaf}.detach().clone()"
                loose = f"torch.nn.Parameter({loose})" if kind == "parameters" else loose
                found.lines.append(f"setattr({owner}, {leaf!r}, {loose})")
    if why := _overlap(live, set(_overlaps(built))):
        raise Lost(
            "Weights share memory without being one Parameter.",
            got=why,
            expected="each Parameter or buffer in memory of its own, or one Parameter under several names",
            what_next="tie them by assigning the Parameter itself: head.weight = embedding.weight",
        )


def _overlap(module: torch.nn.Module, known: set[tuple[str, str]]) -> str:
    return next((f"{one} and {other}" for one, other in _overlaps(module) if (one, other) not in known), "")


def _overlaps(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """Names of different tensors one beginning where another has not ended."""
    spans: dict[torch.device, list[tuple[int, int, str]]] = {}
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if value.layout is torch.strided and value.numel() and not value.is_meta:
            steps = (step * (size - 1) for step, size in zip(value.stride(), value.shape, strict=True))
            start = value.data_ptr()
            spans.setdefault(value.device, []).append((start, start + (sum(steps) + 1) * value.element_size(), name))
    for listed in spans.values():
        end, last = 0, ""
        for start, stop, name in sorted(listed):
            if start < end:
                yield last, name
            if stop > end:
                end, last = stop, name


def _tensors(path: str, part: torch.nn.Module, other: torch.nn.Module, found: Amendments) -> None:
    """Types, whether weights learn, and the buffers that no state_dict has."""
    for name, value in part._parameters.items():
        made, place = other._parameters.get(name), f"{_at(path)}.{name}"
        if value is None or made is None or isinstance(made, torch.nn.parameter.UninitializedParameter):
            continue
        if value.dtype is not made.dtype:
            found.lines.append(f"{place}.data = {place}.data.to({value.dtype})")
        for order in ("channels_last", "channels_last_3d"):
            if _ordered(value, order) and not _ordered(made, order):
                found.lines.append(f"{place}.data = {place}.data.to(memory_format=torch.{order})")
        if value.requires_grad is not made.requires_grad:
            found.lines.append(f"{place}.requires_grad_({value.requires_grad})")
    for name, buffer in part._buffers.items():
        held = other._buffers.get(name)
        hidden = name in part._non_persistent_buffers_set
        same = name in other._buffers and hidden is (name in other._non_persistent_buffers_set)
        if hidden and not (same and not difference(buffer, held, name)):
            text = f"{_at(path)}.{name}.to({getattr(buffer, 'dtype', None)})"
            if not (isinstance(held, torch.Tensor) and buffer is not None and equal(buffer, held.to(buffer.dtype))):
                text = "None" if buffer is None else _written(buffer, found)
            found.lines.append(f"{_at(path)}.register_buffer({name!r}, {text}, persistent=False)")
        elif not hidden and isinstance(buffer, torch.Tensor) and isinstance(held, torch.Tensor):
            if buffer.dtype is not held.dtype:
                found.lines.append(f"{_at(path)}.{name} = {_at(path)}.{name}.to({buffer.dtype})")


def _ordered(value: torch.Tensor, order: str) -> bool:
    """Whether a weight lies channels last, and not in rows as well."""
    dims = {"channels_last": 4, "channels_last_3d": 5}[order]
    return value.ndim == dims and not value.is_contiguous() and value.is_contiguous(memory_format=getattr(torch, order))


def _attributes(path: str, part: torch.nn.Module, other: torch.nn.Module, text: str, found: Amendments) -> None:
    """Attributes that were set, changed or deleted after the constructor had run."""
    for name in {**vars(part), **vars(other)}:
        if name in _TORCHS:
            continue
        read = installed(type(part)) or re.search(rf"\b{re.escape(name)}\b|getattr\(self", text)
        value, made = vars(part).get(name, ABSENT), vars(other).get(name, ABSENT)
        shown_as = ".".join(filter(None, (path, name)))
        why = difference(value, made, shown_as)
        if not why or not read:
            continue  # the same, or nothing reads it
        place = f"vars({_at(path)})[{name!r}]"
        if value is ABSENT:
            found.lines.append(f"vars({_at(path)}).pop({name!r}, None)")
        elif is_plain(value):
            found.lines.append(f"{place} = {literal(value)}")
        else:
            found.doubts.append((other, name, mark(made), why))


def written_attributes(live: torch.nn.Module, found: Amendments, built: torch.nn.Module) -> None:
    """Doubts that no call settled become lines where they are tensors on the CPU."""
    paths = {id(part): path for path, part in built.named_modules()}
    left = []
    for part, name, was, why in found.doubts:
        path = paths.get(id(part))
        value = None if path is None else vars(live.get_submodule(path)).get(name)
        unwritten = mark(vars(part).get(name, ABSENT)) == was
        if unwritten and isinstance(value, torch.Tensor) and value.device.type == "cpu" and not value.requires_grad:
            found.lines.append(f"vars({_at(path or '')})[{name!r}] = {_written(value, found)}")
        else:
            left.append((part, name, was, why))
    found.doubts[:] = left


def _written(value: torch.Tensor, found: Amendments) -> str:
    """A tensor as text, bit for bit."""
    if value.layout is not torch.strided or value.is_quantized or value.is_meta:
        raise Lost(
            "A buffer that is no part of the state_dict cannot be written down.",
            got=shown(value) + f" of layout {value.layout}",
            expected="a dense tensor with data",
            what_next="make it in the constructor",
        )
    shape, flat = list(value.shape), value.detach().to("cpu").contiguous().reshape(-1)
    if not flat.numel():
        return f"torch.empty({shape}, dtype={value.dtype})"
    found.size += flat.numel() * flat.element_size()
    if found.size > LARGEST:
        return "None"  # refused by whoever asked
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    body = bytes(flat.view(torch.uint8).tolist()).hex()
    return f"torch.frombuffer(bytearray.fromhex('{body}'), dtype={value.dtype}).reshape({shape})"


def _modes(
    live: torch.nn.Module, built: torch.nn.Module, pairs: list[tuple[str, torch.nn.Module, torch.nn.Module]]
) -> None:
    """Refuse parts in another mode than ``train()`` or ``eval()`` of the whole gives them, where modes matter."""
    built.train(live.training)
    for path, part, other in pairs:
        if part.training is not other.training and _by_mode(part):
            mode, whole = (f"{'train' if kept else 'eval'}()" for kept in (part.training, live.training))
            raise Lost(
                "A part of the module is in another mode than the whole.",
                got=f"{path or 'the module'} ({type(part).__name__}) is in {mode}, the module in {whole}",
                expected="one mode for all parts, or a train() of the class that gives them theirs",
                what_next=f"call module.{whole}, or define train() in a class so that {path or 'it'} stays in {mode}",
            )


def _by_mode(part: torch.nn.Module) -> bool:
    """Whether a part by itself may answer otherwise in train() than in eval()."""
    if type(part).__module__.startswith("torch."):
        return _BY_MODE.search(type(part).__name__) is not None
    try:
        return "training" in inspect.getsource(type(part))
    except (OSError, TypeError):
        return True
