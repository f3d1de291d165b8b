# SPDX-License-Identifier: Apache-2.0
"""A module put together from its parts, where nothing tells what its constructor was called with.

Layers appended in a loop, a configuration that nobody kept: the class, what the instance keeps and its parts make
another like it, and its constructor is not run.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelwright.capture.values import literal, unplain

PUT_TOGETHER = "_put_together"
PUT_TOGETHER_SOURCE = f"""def {PUT_TOGETHER}(kind, values, tensors, parts):
    made = object.__new__(kind)
    torch.nn.Module.__init__(made)
    made.__dict__.update(values)
    for name, (value, role) in tensors.items():
        if role in ("buffer", "hidden"):
            made.register_buffer(name, value, persistent=role == "buffer")
        else:
            value = value if value is None else torch.nn.Parameter(value, role == "learns")
            made.register_parameter(name, value)
    for name, part in parts.items():
        made.add_module(name, part)
    return made
"""
_ITS_OWN = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}


def obstacle(module: torch.nn.Module) -> str:
    """Why a module is more than its class, plain attributes, tensors and parts; an empty string where it is not."""
    fresh = vars(torch.nn.Module())
    for name, value in vars(module).items():
        if name in _ITS_OWN:
            continue
        if name in fresh:
            if value != fresh[name]:
                return f"it has hooks ({name.strip('_')})"
        elif why := unplain(value, name):
            return why
    return ""


def assembled(module: torch.nn.Module, name: str, part: Callable[[torch.nn.Module], str]) -> str:
    """The call that puts a module without ``obstacle`` together; ``part`` writes one that makes a part."""
    values = {key: value for key, value in vars(module).items() if key not in vars(torch.nn.Module())}
    hidden = module._non_persistent_buffers_set
    held = module._parameters.items()
    tensors = [_entry(key, v, "learns" if v is None or v.requires_grad else "fixed") for key, v in held]
    tensors += [_entry(key, v, "hidden" if key in hidden else "buffer") for key, v in module._buffers.items()]
    parts = [f"{key!r}: {'None' if child is None else part(child)}" for key, child in module._modules.items()]
    return f"{PUT_TOGETHER}({name}, {literal(values)}, {{{', '.join(tensors)}}}, {{{', '.join(parts)}}})"


def _entry(name: str, value: torch.Tensor | None, role: str) -> str:
    """``role``: a parameter that "learns" or is "fixed", a "buffer", or one that is "hidden" from the state_dict."""
    return f"{name!r}: ({'None' if value is None else literal(value)}, {role!r})"
