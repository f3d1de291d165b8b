# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate's own code does the work, read from its text: a reward for calling a library teaches nothing.

It is a rule of the environment and no verdict: the judge calls a fast library call fast, which it is.
"""

from __future__ import annotations

import ast

from kernelwright.candidate import Candidate

HOUSEKEEPING = frozenset(
    "empty empty_like empty_strided zeros zeros_like ones full new_empty new_zeros device Tensor dtype Size "
    "is_grad_enabled no_grad inference_mode current_stream synchronize get_device_properties get_num_threads cuda nn "
    "Parameter register_buffer manual_seed as_strided finfo iinfo promote_types result_type".split()
)
"""Names of torch that allocate, describe or hold, and compute nothing."""
METHODS = frozenset(
    "matmul mm bmm addmm softmax log_softmax sum mean amax max min exp log relu sigmoid tanh norm std var cumsum "
    "prod pow sqrt rsqrt einsum baddbmm addcmul addcdiv clamp gelu silu conv2d argmax topk sort".split()
)
"""Methods of tensors that do arithmetic a task could be about."""


def borrowed(candidate: Candidate) -> str:
    """What of torch's arithmetic the Python files call, as ``torch.softmax``; empty where own code does the work."""
    if candidate.language == "torch":
        return "no code of its own"
    for name, text in candidate.sources:
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # it will not load either
        found = next((call for call in _calls(tree)), "")
        if found:
            return found
    return ""


def _calls(tree: ast.Module) -> list[str]:
    layers = _layers(tree)
    found = []
    kernels = _kernels(tree)
    for node in _outside(tree, kernels):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found.append("@")
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        dotted = ast.unparse(node.func)
        root, _, _ = dotted.partition(".")
        last = node.func.attr
        if root in ("torch", "F") and last not in HOUSEKEEPING and not dotted.startswith(("torch.cuda.", "torch.nn.")):
            found.append(dotted)
        elif root not in ("math", "np", "tl", "ctypes", "_lib", "lib") and last in METHODS:
            found.append(f".{last}")
        elif dotted in layers:
            found.append(dotted)
    return found


def _layers(tree: ast.Module) -> set[str]:
    """``self.NAME`` of every layer of torch.nn that is made."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = ast.unparse(node.value.func)
            if made.startswith(("nn.", "torch.nn.")) and not made.endswith(("Parameter", "Buffer")):
                found |= {ast.unparse(target) for target in node.targets}
    return found


def _kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions that Triton compiles: what they call is their own work."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list)
    ]


def _outside(tree: ast.Module, kernels: list[ast.FunctionDef]) -> list[ast.AST]:
    inside = {id(node) for kernel in kernels for node in ast.walk(kernel)}
    return [node for node in ast.walk(tree) if id(node) not in inside]
