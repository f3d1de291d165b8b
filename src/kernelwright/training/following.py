# SPDX-License-Identifier: Apache-2.0
"""Follows tensors and names through the Python of a candidate: which of its expressions let a library compute.

Names are resolved through imports and assignments. A value is a ``tensor`` (what ``forward`` gets, what is allocated,
parameters, views of these), a ``layer`` of torch.nn, a ``library`` of native code, ``plain``, or unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

MODULES = frozenset(
    "torch triton ctypes math pathlib os sys functools typing collections dataclasses itertools contextlib abc enum "
    "struct weakref threading warnings __future__ types re time string copy numbers".split()
)
"""What may be imported: nothing else of these than torch computes on tensors."""
TORCH = frozenset(
    "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like device Tensor dtype Size Generator "
    "is_grad_enabled no_grad inference_mode set_grad_enabled enable_grad get_num_threads set_num_threads nn autograd "
    "cuda manual_seed as_strided finfo iinfo promote_types result_type is_tensor contiguous_format channels_last "
    "float float16 float32 float64 half bfloat16 double int int8 int16 int32 int64 long short uint8 bool complex64 "
    "complex128 preserve_format strided memory_format version __version__ get_default_dtype utils".split()
)
"""Names of torch that allocate, describe or hold, and compute nothing."""
DEEPER = frozenset(
    "torch.nn.Module torch.nn.Parameter torch.nn.ParameterList torch.nn.ParameterDict torch.nn.Buffer torch.nn.init "
    "torch.nn.ModuleList torch.nn.ModuleDict torch.autograd.Function torch.autograd.function "
    "torch.autograd.function.once_differentiable torch.nn.parameter.Parameter torch.nn.parameter "
    "torch.nn.modules torch.utils.data".split()
)
METHODS = frozenset(
    "contiguous data_ptr numel nelement size stride dim ndimension view reshape expand expand_as transpose t permute "
    "movedim swapaxes flatten unflatten squeeze unsqueeze unbind split chunk narrow select as_strided detach "
    "detach_ requires_grad_ to type float double half bfloat16 int long bool cpu cuda clone copy_ zero_ fill_ "
    "new_empty new_zeros new_ones new_full new_tensor item tolist is_contiguous element_size storage_offset "
    "untyped_storage data_ptr get_device is_floating_point view_as reshape_as resize_ set_ record_stream "
    "save_for_backward mark_non_differentiable mark_dirty register_buffer register_parameter "
    "type_as unfold diagonal mT adjoint broadcast_to".split()
)
"""Methods of tensors that move, cast or describe, and do no arithmetic."""
COMPUTING = frozenset(
    "matmul mm bmm mv dot addmm addmv addbmm softmax log_softmax sum mean amax amin max min exp exp2 expm1 log log2 "
    "log1p relu relu_ sigmoid tanh norm std var cumsum cumprod prod pow sqrt rsqrt einsum baddbmm addcmul addcdiv "
    "clamp clip clamp_ gelu silu conv2d argmax argmin topk sort add sub mul div add_ sub_ mul_ div_ neg abs square "
    "reciprocal where masked_fill masked_fill_ gather scatter scatter_add index_select index_add logsumexp cross "
    "outer ger lerp sin cos erf all any cdist median quantile histc bincount unique roll flip triu tril kron".split()
)
"""Arithmetic, whoever the receiver may be."""
HIDDEN = frozenset("exec eval compile __import__ globals vars locals setattr breakpoint".split())
SHAPES = frozenset("shape ndim dtype device layout is_cuda requires_grad itemsize nbytes names is_sparse".split())
LAYER_DATA = frozenset("weight bias eps momentum running_mean running_var num_features in_features out_features "
                       "normalized_shape kernel_size padding stride dilation groups p parameters buffers "
                       "state_dict weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0".split())  # fmt: skip
ENTRIES = frozenset({"forward", "backward", "__call__"})
"""Functions that torch calls with tensors."""
MOST_PASSES = 8
Kinds = dict[str, str]


class Reader:
    """One Python file. ``own``: stems of the native files beside it; ``modules``: its Python files."""

    def __init__(self, tree: ast.Module, *, own: frozenset[str], modules: frozenset[str]) -> None:
        self._tree, self._own, self._modules = tree, own, modules
        self.launches = False
        """A call of an own library's function or of a Triton kernel was seen."""
        self._names: dict[str, str] = {}
        self._kinds: Kinds = {}
        self._kernels = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _jitted(node)}
        self._classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self._functions = {node.name: node for node in functions if node.name not in self._kernels}
        self._given: set[tuple[str, str]] = set()
        """(function, parameter) that some call passes a tensor to."""
        self._returned: dict[str, str] = {}
        """Function to the kind of what it returns."""
        self._inside = ""
        self._found: list[str] = []

    def read(self) -> Iterator[str]:
        """Everything borrowed, in the order of the file."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._imported(node)
        for _ in range(MOST_PASSES):  # a function may be given what a later one makes
            before = (len(self._given), dict(self._returned), dict(self._kinds))
            self._found = [f"import {kind}" for name, kind in self._kinds.items() if name.startswith("import ")][:1]
            for node in self._tree.body:
                self._statement(node, self._kinds)
            if before == (len(self._given), self._returned, self._kinds):
                break
        yield from self._found

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for name in node.names:
            whole = name.name if isinstance(node, ast.Import) else f"{node.module or ''}.{name.name}"
            root = whole.split(".")[0]
            if isinstance(node, ast.ImportFrom) and node.level or root in self._modules:
                continue
            if root not in MODULES:
                self._kinds["import " + root] = root
            bound = name.asname or (root if isinstance(node, ast.Import) else name.name)
            self._names[bound] = whole if name.asname or isinstance(node, ast.ImportFrom) else root

    def _statement(self, node: ast.stmt, kinds: Kinds) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in self._kernels:
                self._function(node, kinds)
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._based(base)
            for child in node.body:
                self._statement(child, kinds)
        elif isinstance(node, ast.Return):
            kind = self._kind(node.value, kinds) if node.value is not None else "unknown"
            if kind != "unknown" and self._returned.get(self._inside) != "tensor":
                self._returned[self._inside] = kind
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self._assigned(node, kinds)
        else:
            self._compound(node, kinds)

    def _assigned(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, kinds: Kinds) -> None:
        kind = self._kind(node.value, kinds) if node.value is not None else "plain"
        if isinstance(node, ast.AugAssign) and "tensor" in (kind, self._kind(node.target, kinds)):
            self._found.append(f"{_sign(node.op)}= on a tensor")
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._bind(target, kind, node.value, kinds)

    def _compound(self, node: ast.stmt, kinds: Kinds) -> None:
        """Loops, conditions, contexts and bare expressions: what is in them, in order."""
        if isinstance(node, ast.For):
            self._bind(node.target, self._kind(node.iter, kinds), None, kinds)
        for _, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt):
                    self._statement(child, kinds)
                elif isinstance(child, ast.expr):
                    self._kind(child, kinds)
                elif isinstance(child, ast.withitem | ast.ExceptHandler | ast.match_case):
                    self._within(child, kinds)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, kinds: Kinds) -> None:
        inner, outer = dict(kinds), self._inside
        for arg in _arguments(node):
            given = (node.name, arg.arg) in self._given or node.name in ENTRIES and arg.arg not in ("self", "ctx")
            note = ast.unparse(arg.annotation) if arg.annotation is not None else ""
            inner[arg.arg] = "plain" if note in ("int", "float", "bool", "str") else "tensor" if given else "unknown"
        self._inside = node.name
        for child in node.body:
            self._statement(child, inner)
        self._inside = outer
        kinds.update({name: kind for name, kind in inner.items() if name.startswith("self.")})

    def _within(self, node: ast.withitem | ast.ExceptHandler | ast.match_case, kinds: Kinds) -> None:
        if isinstance(node, ast.withitem):
            self._kind(node.context_expr, kinds)
            return
        for child in node.body:
            self._statement(child, kinds)

    def _bind(self, target: ast.expr, kind: str, value: ast.expr | None, kinds: Kinds) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._bind(one, kind, None, kinds)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, kind, None, kinds)
        elif isinstance(target, ast.Name | ast.Attribute):
            name = ast.unparse(target)
            dotted = self._dotted(value) if value is not None else None
            if dotted is not None and isinstance(target, ast.Name):
                self._names[name] = dotted
            kinds[name] = kind
        elif isinstance(target, ast.Subscript):
            self._kind(target, kinds)

    def _based(self, base: ast.expr) -> None:
        dotted = self._dotted(base) or ""
        if dotted.startswith("torch.") and dotted not in DEEPER:
            self._found.append(f"class of {dotted}")

    def _dotted(self, node: ast.expr) -> str | None:
        """The full name of a module's member, through aliases and constant ``getattr``."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            root = self._dotted(node.value)
            return f"{root}.{node.attr}" if root else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and node.args:
            root, name = self._dotted(node.args[0]), node.args[1] if len(node.args) > 1 else None
            if root and isinstance(name, ast.Constant) and isinstance(name.value, str):
                return f"{root}.{name.value}"
        return None

    def _kind(self, node: ast.expr, kinds: Kinds) -> str:
        """What a value is; what it borrows is noted on the way."""
        dotted = self._dotted(node)
        if dotted is not None:
            return self._member(dotted)
        if isinstance(node, ast.Name):
            return kinds.get(node.id, "unknown")
        if isinstance(node, ast.Attribute):
            return self._attribute(node, kinds)
        if isinstance(node, ast.Call):
            return self._call(node, kinds)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp):
            return self._operation(node, kinds)
        if isinstance(node, ast.Subscript):
            place, kind = self._kind(node.slice, kinds), self._kind(node.value, kinds)
            if kind == place == "tensor":
                self._found.append("an index that is a tensor")
            return kind
        return self._nested(node, kinds)

    def _nested(self, node: ast.expr, kinds: Kinds) -> str:
        """Literals, conditional expressions, comprehensions, functions without a name."""
        if isinstance(node, ast.Constant | ast.JoinedStr):
            return "plain"
        if isinstance(node, ast.Lambda):
            self._kind(node.body, kinds | {arg.arg: "unknown" for arg in node.args.args})
            return "plain"
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            inner = dict(kinds)
            for part in node.generators:
                self._bind(part.target, self._kind(part.iter, inner), None, inner)
            return self._kind(node.value if isinstance(node, ast.DictComp) else node.elt, inner)
        found = [self._kind(child, kinds) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return "tensor" if "tensor" in found else "plain"

    def _member(self, dotted: str) -> str:
        parts = dotted.split(".")
        if parts[0] != "torch" or len(parts) == 1:
            return "plain"
        if parts[1] == "cuda" or dotted in DEEPER or dotted.startswith(("torch.nn.init.", "torch.Tensor.data_ptr")):
            return "plain"
        if parts[1] == "Tensor" and len(parts) > 2 or parts[1] not in TORCH or dotted.startswith("torch.nn.functional"):
            self._found.append(dotted)
        elif parts[1] in ("nn", "autograd", "utils") and len(parts) > 2:
            return "layer class"
        return "plain"

    def _attribute(self, node: ast.Attribute, kinds: Kinds) -> str:
        name = ast.unparse(node)
        if name in kinds:
            return kinds[name]
        kind = self._kind(node.value, kinds)
        if kind == "tensor":
            return "plain" if node.attr in SHAPES else "tensor"
        if kind == "layer":
            return "tensor" if node.attr in LAYER_DATA else "layer"
        return "library" if kind == "library" else "unknown"

    def _operation(self, node: ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp, kinds: Kinds) -> str:
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        found = [self._kind(child, kinds) for child in children]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            self._found.append("@")
        elif "tensor" in found:
            identity = isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
            if not identity and not isinstance(node, ast.BoolOp) and not isinstance(getattr(node, "op", 0), ast.Not):
                self._found.append(f"{_sign(getattr(node, 'op', node))} on a tensor")
            return "plain" if identity else "tensor"
        return "plain"

    def _call(self, node: ast.Call, kinds: Kinds) -> str:
        passed = [self._kind(arg.value if isinstance(arg, ast.Starred) else arg, kinds) for arg in node.args]
        passed += [self._kind(word.value, kinds) for word in node.keywords]
        function = node.func
        dotted = self._dotted(function)
        if dotted is not None:
            return self._named_call(dotted, node)
        if isinstance(function, ast.Name):
            if function.id in HIDDEN or function.id == "getattr" and not _constant(node):
                self._found.append(f"{function.id}(...), which cannot be followed")
            if function.id in ("sum", "max", "min", "abs", "pow", "map", "reversed", "sorted") and "tensor" in passed:
                self._found.append(f"{function.id} of a tensor")
            kind = kinds.get(function.id, "unknown")
            if kind in ("layer", "library"):
                return self._of(kind, function.id)
            if function.id in ("len", "int", "float", "range", "str", "isinstance", "hasattr", "print"):
                return "plain"
            return self._own_call(function.id, node, passed)
        if isinstance(function, ast.Subscript):  # kernel[grid](...)
            return self._launch(function, kinds)
        if isinstance(function, ast.Attribute):
            return self._method(function, node, passed, kinds)
        kind = self._kind(function, kinds)
        if kind in ("layer", "library"):
            return self._of(kind, ast.unparse(function)[:60])
        return "tensor" if "tensor" in passed else "unknown"

    def _own_call(self, name: str, node: ast.Call, passed: list[str]) -> str:
        """A function of this file, or one that is not known: what it gets, and what it gives back."""
        known = self._functions.get(name)
        if known is not None:
            names = [arg.arg for arg in _arguments(known) if arg.arg not in ("self", "cls")]
            words = [word.arg or "" for word in node.keywords]
            by_place = [*names[: len(node.args)], *[""] * (len(node.args) - len(names)), *words]
            self._given |= {(name, arg) for arg, kind in zip(by_place, passed, strict=True) if arg and kind == "tensor"}
            return self._returned.get(name, "unknown")
        return "tensor" if "tensor" in passed else "unknown"

    def _named_call(self, dotted: str, node: ast.Call) -> str:
        kind = self._member(dotted)
        if dotted.split(".")[0] == "ctypes":
            text = ast.unparse(node)
            if dotted.rpartition(".")[2] in ("CDLL", "LoadLibrary", "PyDLL"):
                if not any(f"{stem}.so" in text for stem in self._own):
                    self._found.append(f"{dotted} of another library")
                return "library"
            return "plain"
        if dotted.split(".")[0] in ("os", "sys") and dotted.rpartition(".")[2] in ("system", "popen", "execv"):
            self._found.append(dotted)
        if kind == "layer class":
            return "layer"
        return "tensor" if dotted.startswith("torch.") and not dotted.startswith("torch.cuda.") else "plain"

    def _launch(self, function: ast.Subscript, kinds: Kinds) -> str:
        self._kind(function.slice, kinds)
        if isinstance(function.value, ast.Name) and function.value.id in self._kernels:
            self.launches = True
            return "plain"
        if self._kind(function.value, kinds) == "library":
            return self._of("library", "")
        self._found.append(f"{ast.unparse(function)[:60]}(...), which cannot be followed")
        return "unknown"

    def _method(self, function: ast.Attribute, node: ast.Call, passed: list[str], kinds: Kinds) -> str:
        name, owner = function.attr, ast.unparse(function.value)
        if owner == "super()":
            return "unknown"
        if owner in ("self", "cls", *self._classes):
            if name in self._functions or owner in self._classes:
                return self._own_call(name, node, passed)
        whole = kinds.get(ast.unparse(function), "")
        kind = whole if whole in ("layer", "library") else self._kind(function.value, kinds)
        if owner == "self" and whole == "":
            kind = "unknown"
        if kind in ("layer", "library"):
            return "plain" if kind == "layer" and name in LAYER_DATA else self._of(kind, name)
        computes = name in COMPUTING and (kind == "unknown" or "tensor" in passed)
        if kind == "tensor" and name not in METHODS or computes or name[:2] == "__":
            self._found.append(f".{name}")
        return "plain" if name in ("size", "stride", "numel", "dim", "data_ptr", "element_size") else kind

    def _of(self, kind: str, name: str) -> str:
        if kind == "layer":
            self._found.append(f"a call of the layer {name}")
            return "tensor"
        self.launches = True
        return "plain"


def _jitted(node: ast.FunctionDef) -> bool:
    """What Triton compiles: what it calls is its own work."""
    return any("jit" in ast.unparse(one) and "torch" not in ast.unparse(one) for one in node.decorator_list)


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    found = node.args
    return [*found.posonlyargs, *found.args, *found.kwonlyargs, *(arg for arg in (found.vararg, found.kwarg) if arg)]


def _constant(node: ast.Call) -> bool:
    return len(node.args) > 1 and isinstance(node.args[1], ast.Constant)


def _sign(op: ast.AST) -> str:
    signs = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Pow: "**",
             ast.USub: "-", ast.Mod: "%", ast.Compare: "a comparison"}  # fmt: skip
    return signs.get(type(op), "an operator")
