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
    for name, (value, gradient) in tensors.items():
        if gradient is None:
            made.register_buffer(name, value)
        else:
            made.register_parameter(name, value if value is None else torch.nn.Parameter(value, gradient))
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
    if module._non_persistent_buffers_set:
        return f"{min(module._non_persistent_buffers_set)} is a buffer that its state_dict does not have"
    for kind in ("parameters", "buffers"):
        names = [id(value) for _, value in getattr(module, f"named_{kind}")(remove_duplicate=False)]
        if len(set(names)) < len(names):
            return f"some of its {kind} are one under two names"
    return ""


def assembled(module: torch.nn.Module, name: str, part: Callable[[torch.nn.Module], str]) -> str:
    """The call that puts a module without ``obstacle`` together; ``part`` writes one that makes a part."""
    values = {key: value for key, value in vars(module).items() if key not in vars(torch.nn.Module())}
    tensors = [_entry(key, value, None) for key, value in module._buffers.items()]
    held = module._parameters.items()
    tensors = [*(_entry(key, v, True if v is None else v.requires_grad) for key, v in held), *tensors]
    parts = [f"{key!r}: {'None' if child is None else part(child)}" for key, child in module._modules.items()]
    return f"{PUT_TOGETHER}({name}, {literal(values)}, {{{', '.join(tensors)}}}, {{{', '.join(parts)}}})"


def _entry(name: str, value: torch.Tensor | None, gradient: bool | None) -> str:
    return f"{name!r}: ({'None' if value is None else literal(value)}, {gradient})"
