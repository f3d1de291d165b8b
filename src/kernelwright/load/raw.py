# SPDX-License-Identifier: Apache-2.0
"""A raw ``extern "C"`` kernel to a Python module that calls it: the rule for parameters, and the wrapper text.

The rule. The file defines exactly one function inside ``extern "C"``; it returns nothing, or int (0: good).

- Pointers that are not const are outputs, in the order of the reference's outputs; they come first.
- ``const`` pointers are inputs. One named like a parameter or buffer of the reference (dots as underscores,
  ``net.0.weight`` is ``net_0_weight``) is that tensor; the others are the reference's tensor arguments in order,
  those in a dict by the order of its sorted keys.
- ``void* stream`` (CUDA only) is the current stream.
- A number named ``n`` is the element count of the first output; ``n_x`` that of pointer ``x``; ``x_d0``,
  ``x_d1`` ... its sizes; ``x_s0``, ``x_s1`` ... its strides in elements (inputs are made contiguous first).
- Any other number is the attribute of that name of the reference module, or its argument of that name.

Where a dtype is not the one of the pointer, or a gradient is asked for, the reference runs instead. The shapes of
outputs must follow from the arguments other than the values in tensors: they are asked of the reference once for each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import CandidateError
from kernelwright.task import Task

POINTERS = {
    "float": "float32", "double": "float64", "half": "float16", "__half": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "at::BFloat16": "bfloat16",
    "int": "int32", "int32_t": "int32", "int64_t": "int64", "long": "int64", "long long": "int64",
    "int16_t": "int16", "short": "int16", "int8_t": "int8", "signed char": "int8", "uint8_t": "uint8",
    "unsigned char": "uint8", "bool": "bool",
}  # fmt: skip
NUMBERS = {
    "int": "c_int", "int32_t": "c_int32", "int64_t": "c_int64", "long": "c_long", "long long": "c_longlong",
    "unsigned": "c_uint", "unsigned int": "c_uint", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
    "size_t": "c_size_t", "float": "c_float", "double": "c_double", "bool": "c_bool",
}  # fmt: skip
_DROPPED = re.compile(r"\b(__restrict__|__restrict|restrict|std::|struct)\b|std::")


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of the function. ``kind`` is ``out``, ``in``, ``stream`` or ``number``."""

    kind: str
    name: str
    type: str
    """torch dtype of a pointer, ctypes name of a number."""


def wrap(task: Task, path: Path, text: str) -> str:
    """Python source of a ``ModelNew`` that derives from the reference and calls the kernel. Raises CandidateError."""
    name, returns, arguments = parse(path, text)
    plan = [(a.kind, a.name, a.type) for a in arguments]
    values = {
        "LIBRARY": f"{path.stem}.so",
        "FUNCTION": name,
        "PLAN": plan,
        "RETURNS_STATUS": returns == "int",
    }
    head = "\n".join(f"{key} = {value!r}" for key, value in values.items())
    body = _WRAPPER.replace("REFERENCE_CLASS", task.entry)
    # The reference first: it may begin with an import from __future__.
    return f"{task.reference.rstrip()}\n\n\n{_IMPORTS}\n{head}\n{body}"


def parse(path: Path, text: str) -> tuple[str, str, tuple[Argument, ...]]:
    """(name, return type, arguments) of the one function defined inside extern "C". Raises CandidateError."""
    code = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    code = re.sub(r"//[^\n]*", " ", code)
    found = _functions(code)
    if len(found) != 1:
        raise CandidateError(
            f'{path.name} does not define exactly one extern "C" function.',
            got=", ".join(name for _, name, _ in found) or "none",
            expected='extern "C" void NAME(float* out, const float* x, int64_t n) { ... }',
            what_next="make the others static; in a .cu file this is the host function that launches the kernels",
        )
    returns, name, inside = found[0]
    arguments = tuple(_argument(path, part.strip()) for part in inside.split(",") if part.strip() not in ("", "void"))
    kinds = [argument.kind for argument in arguments if argument.kind in ("out", "in")]
    if "out" not in kinds or kinds != sorted(kinds, reverse=True):
        raise CandidateError(
            f"{name}: the outputs do not come first.",
            got=inside.strip() or "no parameters",
            expected="pointers that are not const (outputs), then const pointers (inputs), then numbers",
        )
    return name, returns, arguments


def _functions(code: str) -> list[tuple[str, str, str]]:
    """(return type, name, parameters) of each definition inside extern "C"."""
    pattern = re.compile(r"\b(void|int)\s+(\w+)\s*\(([^()]*)\)\s*\{")
    found = []
    for opening in re.finditer(r'extern\s+"C"\s*', code):
        rest = code[opening.end() :]
        if rest.startswith("{"):
            found += [match.groups() for match in pattern.finditer(_outermost(rest))]
        else:
            match = re.match(r"(?:__declspec\(\w+\)\s*|__attribute__\(\(.*?\)\)\s*|inline\s+)*", rest)
            single = pattern.match(rest[match.end() :] if match else rest)
            found += [single.groups()] if single else []
    return [(str(a), str(b), str(c)) for a, b, c in found]


def _outermost(text: str) -> str:
    """The block that opens at the start of ``text``, with the bodies of its functions cut out."""
    depth, kept = 0, []
    for letter in text:
        depth += letter == "{"
        if depth <= 1 or (depth == 2 and letter == "{"):
            kept.append(letter)
        depth -= letter == "}"
        if depth == 0:
            break
    return "".join(kept[1:])


def _argument(path: Path, text: str) -> Argument:
    const = bool(re.search(r"\bconst\b", text.partition("*")[0]))
    plain = " ".join(re.sub(r"\bconst\b", " ", _DROPPED.sub(" ", text)).split())
    match = re.fullmatch(r"([\w: ]+?)\s*(\*?)\s*(\w+)", plain)
    if match:
        kind, star, name = match[1].strip(), match[2], match[3]
        if (star and kind == "void" and name == "stream") or (kind == "cudaStream_t" and not star):
            return Argument("stream", name, "")
        if star and kind in POINTERS:
            return Argument("in" if const else "out", name, POINTERS[kind])
        if not star and kind in NUMBERS:
            return Argument("number", name, NUMBERS[kind])
    raise CandidateError(
        f"{path.name}: a parameter has a type that cannot be passed.",
        got=text,
        expected="pointers to " + ", ".join(POINTERS) + "; numbers among " + ", ".join(NUMBERS),
    )


_IMPORTS = """import ctypes
import inspect
import pathlib

import torch
"""

_WRAPPER = '''

def _load():
    library = ctypes.CDLL(str(pathlib.Path(__file__).resolve().parent / LIBRARY))
    function = getattr(library, FUNCTION)
    kinds = {"out": ctypes.c_void_p, "in": ctypes.c_void_p, "stream": ctypes.c_void_p}
    function.argtypes = [kinds[kind] if kind in kinds else getattr(ctypes, name) for kind, _, name in PLAN]
    function.restype = ctypes.c_int if RETURNS_STATUS else None
    return function


_FUNCTION, _EMPTY = _load(), torch.empty_strided


def _stream(device):
    """The current stream of a device. Its Stream takes torch longer to make than a kernel to launch."""
    try:
        return torch._C._cuda_getCurrentRawStream(device.index)
    except AttributeError:
        return torch.cuda.current_stream(device).cuda_stream


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _tensors(item)]
    if isinstance(value, dict):
        return [leaf for name in sorted(value, key=str) for leaf in _tensors(value[name])]  # in any order
    return []


def _key(value):
    """Equal only where outputs have equal shapes: everything about the arguments but the values in tensors."""
    if isinstance(value, torch.Tensor):
        return (value.shape, value.dtype, value.device)
    if value is None or type(value) in (int, bool, str, float):
        return (type(value), value)
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_key, value))
    if isinstance(value, dict):
        return (dict, *((name, _key(value[name])) for name in sorted(value, key=str)))
    return (type(value), repr(value))


_OUTS, _INS = ([(name, dtype) for kind, name, dtype in PLAN if kind == way] for way in ("out", "in"))
_POINTERS = [name for name, _ in _OUTS + _INS]


def _measure(name):
    """(what it is of a pointer, which pointer, which axis) for a number that a name says, as n, n_x, x_d0 and x_s0."""
    if name == "n":
        return ("n", 0, 0)
    if name.startswith("n_") and name[2:] in _POINTERS:
        return ("n", _POINTERS.index(name[2:]), 0)
    base, _, end = name.rpartition("_")
    if base in _POINTERS and end[:1] in ("d", "s") and end[1:].isdigit():
        return (end[0], _POINTERS.index(base), int(end[1:]))
    return None


_PARAMETERS = list(inspect.signature(REFERENCE_CLASS.forward).parameters)
# Attributes that the kernel is handed may be other ones by now.
_OWN = [name for kind, name, _ in PLAN if kind == "number" and _measure(name) is None and name not in _PARAMETERS]


class ModelNew(REFERENCE_CLASS):
    """Calls the compiled kernel; runs the reference where its rule does not apply."""

    def _known(self, args):
        """How the kernel is called for such arguments, looked up once, or None. A call costs what a launch does."""
        key = (self.training, *map(_key, args))
        if _OWN:
            key += tuple(_key(getattr(self, name, None)) for name in _OWN)
        known = self.__dict__.setdefault("_kernel_calls", {})
        if key not in known:
            if len(known) >= 1000:
                known.clear()  # a number that is another one at every call
            known[key] = self._planned(args)
        return known[key]

    def _planned(self, args):
        with torch.no_grad():
            result = super().forward(*args)
        leaves = _tensors(result)
        alone, several = isinstance(result, torch.Tensor), isinstance(result, (list, tuple))
        if not alone and not (several and all(isinstance(item, torch.Tensor) for item in result)):
            return None
        if len(leaves) != len(_OUTS) or any(t.dtype != getattr(torch, d) for t, (_, d) in zip(leaves, _OUTS)):
            return None
        state, given, count, sources = self.state_dict(keep_vars=True), _tensors(args), 0, []
        names = {name.replace(".", "_"): name for name in state}
        for name, dtype in _INS:
            sources.append((0, self._reader(names[name], state), getattr(torch, dtype)) if name in names
                           else (count, None, getattr(torch, dtype)))
            count += name not in names
        if count > len(given) or any(read is None and given[at].dtype != dtype for at, read, dtype in sources):
            return None
        # The key knows the shapes of results and arguments, not those of weights.
        outputs = [torch.empty(t.shape, dtype=t.dtype, device="meta") for t in leaves]
        fixed = [*outputs, *(given[at] if read is None else None for at, read, _ in sources)]
        handed, slots, late = [], [], []
        for at, (way, name, _) in enumerate(PLAN):
            what, which, axis = (
                (way, 0, 0) if way == "stream" else ("pointer", _POINTERS.index(name), 0) if way != "number"
                else _measure(name) or self._number(name, args))
            handed.append(None)
            if what == "pointer":
                slots.append((at, which))
            elif what == "value":
                handed[at] = which
            elif what in ("n", "d") and fixed[which] is not None:
                handed[at] = fixed[which].numel() if what == "n" else fixed[which].shape[axis]
            else:
                late.append((at, what, which, axis))
        specs = [(t.shape, t.stride(), t.dtype, leaf.device) for t, leaf in zip(outputs, leaves)]
        flat = all(isinstance(a, torch.Tensor) for a in args)
        return (None if alone else type(result), specs, flat, sources, handed, slots, late)

    def _number(self, name, args):
        """Where a number is found that is an argument or an attribute."""
        names = _PARAMETERS[1:]
        bound = inspect.signature(REFERENCE_CLASS.forward).bind(self, *args)
        bound.apply_defaults()
        if name in names and names.index(name) < len(args):
            return ("argument", names.index(name), 0)
        if name in bound.arguments:
            return ("value", bound.arguments[name], 0)
        if hasattr(self, name):
            return ("attribute", name, 0)
        known = "n, and for a pointer such as %s: n_%s, %s_d0, %s_s0" % ((_POINTERS[0],) * 4)
        raise TypeError("the number %s of %s is not known: numbers are %s; or named like an argument or an "
            "attribute of the reference" % (name, FUNCTION, known))

    def _reader(self, path, state):
        """What reads a parameter or buffer, where it can sooner than by a state_dict or by attributes."""
        *owners, last = path.split(".")

        def read(module):
            for name in owners:
                module = module._modules[name]
            return module._parameters[last] if last in module._parameters else module._buffers[last]

        try:
            if read(self) is state[path]:
                return read
        except (AttributeError, KeyError):
            pass
        return lambda module: module.state_dict(keep_vars=True)[path]

    def forward(self, *args):
        if torch.is_grad_enabled() and (
            any(t.requires_grad for t in _tensors(args)) or any(t.requires_grad for t in self.parameters())
        ):
            return super().forward(*args)
        if (plan := self._known(args)) is None:
            return super().forward(*args)
        kind, specs, flat, sources, handed, slots, late = plan
        outputs = [_EMPTY(size, steps, dtype=dtype, device=device) for size, steps, dtype, device in specs]
        pointers, given, handed = outputs[:], args if flat else _tensors(args), handed[:]
        for source, read, dtype in sources:
            tensor = given[source] if read is None else read(self)
            if read is not None and tensor.dtype != dtype:
                return super().forward(*args)
            pointers.append(tensor if tensor.is_contiguous() else tensor.detach().contiguous())
        for at, which in slots:
            handed[at] = pointers[which].data_ptr()
        for at, what, which, axis in late:
            if what == "stream":
                handed[at] = _stream(outputs[0].device)
            elif what == "n":
                handed[at] = pointers[which].numel()
            elif what == "d":
                handed[at] = pointers[which].shape[axis]
            elif what == "s":
                handed[at] = pointers[which].stride(axis)
            else:
                handed[at] = args[which] if what == "argument" else getattr(self, which)
        status = _FUNCTION(*handed)
        if RETURNS_STATUS and status != 0:
            raise RuntimeError(f"{FUNCTION} returned {status}")
        return outputs[0] if kind is None else kind(outputs)
'''
