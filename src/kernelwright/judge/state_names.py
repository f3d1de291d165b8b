# SPDX-License-Identifier: Apache-2.0
"""The names of parameters and buffers, a candidate's beside the reference's. What is saved of one must load into the
other, so a buffer too many is refused as well as one too few.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def differences(own: Collection[str], names: Sequence[str]) -> str:
    """In words, which of a candidate's ``own`` names the reference's do not hold, and which they lack; empty for none.

    Their order is its own business: weights are loaded by name.
    """
    extra, lacking = [name for name in own if name not in names], [name for name in names if name not in own]
    said = []
    if extra:
        what, way = _listed(extra), "register_buffer(name, tensor, persistent=False), or a plain attribute, stays out"
        said.append(f"{what} in the candidate's state_dict and not in the reference's: {way} of it")
    if lacking:
        said.append(f"{_listed(lacking)} missing from it: parameters and buffers keep the reference's names")
    return "; ".join(said)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - 8
    return ", ".join(names[:8]) + (f" and {more} more" if more > 0 else "") + (" are" if len(names) > 1 else " is")
