# SPDX-License-Identifier: Apache-2.0
"""What calls leave in parameters and buffers, where the task's own inputs, or the weights as they are made, say nothing
of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_contract import judged, task

from kernelwright.trial import Rejected
from kernelwright.workers import LocalWorker

BUFFERS = "self.register_buffer('n', torch.zeros(())); self.register_buffer('k', torch.zeros((), dtype=torch.int64))"
COUNTED = "self.k.add_((x.norm(dim=-1) > 99).sum())\nreturn x * 2"
CAPPED = "self.n.copy_(torch.maximum(self.n, x.abs().amax(){}))\nreturn x * 2"
COPIED = "return F.embedding(x, self.e.weight.detach().clone(), None, 8.0)"
TABLE = "self.e = nn.Embedding(100, 32, max_norm=8.0)"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    home = tmp_path_factory.mktemp("judge")
    with LocalWorker("cpu", home / "state", home / "cache") as made:
        yield made


@pytest.mark.parametrize(
    ("init", "forward", "wrong", "inputs"),
    [
        (BUFFERS, COUNTED, "return x * 2", "[torch.randn(16, 64)]"),
        (BUFFERS, CAPPED.format(""), CAPPED.format(".clamp(max=100.0)"), "[torch.randn(16, 64)]"),
        (TABLE, "return self.e(x)", COPIED, "[torch.randint(0, 100, (8, 16))]"),
    ],
)
def test_what_only_larger_numbers_or_weights_leave_is_looked_at(
    worker: LocalWorker, init: str, forward: str, wrong: str, inputs: str
) -> None:
    """A counter of long rows that is never written, a largest that is cut off, rows of a table that stay too long."""
    asked = task(forward, inputs, init=init)
    found = judged(worker, asked, wrong, init=init)
    assert isinstance(found, Rejected) and "is not what the reference leaves there" in found.reason
    right = judged(worker, asked, forward, init=init)
    assert not isinstance(right, Rejected), right
