# SPDX-License-Identifier: Apache-2.0
"""Triton candidates on a CUDA device: every style, contiguous, misaligned and strided inputs, repeated launches."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import triton_cases
from test_triton_program import leaves, prepare
from triton_probe import load, refuse

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def offset(x):
    """The same values, one element past a 16-byte boundary."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return room[1:].view(x.shape).copy_(x)


def strided(x):
    """The same values, every other element of a wider tensor."""
    room = torch.empty(*x.shape, 2, dtype=x.dtype, device=x.device)
    return room[..., 0].copy_(x)


EVERY = triton_cases.CASES | triton_cases.DEVICE_CASES


@pytest.mark.parametrize("name", EVERY)
def test_a_candidate_is_right_for_every_layout_and_on_every_launch(tmp_path, name):
    """A second launch skips the analysis of the first; a misaligned pointer must not run aligned code."""
    case, model = prepare(tmp_path, 0, *EVERY[name])
    module = load(case["path"], "gpu_candidate")
    module._DEVICE = "cuda"
    candidate = module.ModelNew(*case["init"]).eval()
    candidate.load_state_dict(case["state"])
    candidate.cuda()
    module.Model.forward = refuse
    inputs = [x.cuda() for x in case["inputs"]]
    model.cuda()
    with torch.no_grad():
        eager = leaves(model(*inputs))
        exact = leaves(model.double()(*[x.double() if x.is_floating_point() else x for x in inputs]))
        for layout in (torch.clone, torch.clone, offset, strided, torch.clone):
            got = leaves(candidate(*[layout(x) for x in inputs]))
            for mine, plain, best in zip(got, eager, exact, strict=True):
                assert torch.equal(plain.isnan(), mine.isnan())
                if not plain.is_floating_point():
                    assert torch.equal(plain, mine)
                    continue
                least = 4e-15 if plain.dtype == torch.float64 else 4e-7
                allowed = 2 * (plain.double() - best).abs().max() + least * best.abs().max()
                assert (mine.double() - best).abs().max() <= allowed
