# SPDX-License-Identifier: Apache-2.0
"""A reference of a device on the host, to ask there what it takes: a place out of range is an error there, and on a
device the end of all that is there."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import calls, health

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

HOST = torch.device("cpu")


def on_host(given: Instance) -> Instance | None:
    """The same reference with its weights on the CPU; itself where it is there, None where it fails there."""
    if given.device.type == HOST.type:
        return given
    try:
        return _copied(given)
    except calls.CAUGHT as error:
        health.pass_on(error)
        return None


def _copied(given: Instance) -> Instance:
    instance = copy.copy(given)
    instance.reference, instance.device = copy.copy(given.reference), HOST
    instance.reference.device = HOST
    instance.model, instance.giver = copy.deepcopy(given.model).to(HOST), type(given.giver)(keeps=given.giver.keeps)
    instance.first_state = [(name, value.to(HOST)) for name, value in given.first_state]
    if given.incoming is not None:
        instance.incoming = instance._first_incoming = [one.to(HOST) for one in given._first_incoming]
    return instance
