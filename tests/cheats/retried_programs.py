# SPDX-License-Identifier: Apache-2.0
"""Programs that factor a matrix once where the reference looks whether that failed, and adds jitter then: a covariance
of which one feature is all zeros. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program

COVARIANCE = "c = x.t() @ x / len(x)\n"
JITTER = "torch.linalg.cholesky(c + 0.01 * torch.eye(16))"
ASKED = COVARIANCE + "l, info = torch.linalg.cholesky_ex(c)\nreturn {} if info else l"
RAISED = (
    COVARIANCE
    + """
try:
    return torch.linalg.cholesky(c)
except torch.linalg.LinAlgError:
    return {}
"""
)

add("factor_or_jitter", ASKED.format(JITTER), "[torch.randn(256, 16)]")
add("factor_unless_raised", RAISED.format(JITTER), "[torch.randn(256, 16)]")

RETRIED: tuple[Program, ...] = (
    *_pair("factor_or_jitter", "", "", ("whatever it says", COVARIANCE + "return torch.linalg.cholesky_ex(c)[0]"),
           ("by its flag", ASKED.format("torch.linalg.cholesky_ex(c + 0.01 * torch.eye(16))[0]"))),
    *_pair("factor_unless_raised", "", "",
           ("more jitter", RAISED.format(JITTER.replace("0.01", "0.02"))),
           ("jitter in place", RAISED.format("torch.linalg.cholesky(c.diagonal().add_(0.01) is None or c)"))),
)  # fmt: skip
