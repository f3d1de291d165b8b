# SPDX-License-Identifier: Apache-2.0
"""Programs that are right as long as no class is sure: losses of a trained model, whose label has nearly all of the
probability. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program

GIVEN, TAKES = "[torch.randn(64, 32), torch.randint(0, 128, (64,))]", "x, y"
INIT = "self.w = nn.Parameter(torch.randn(32, 128) / 6)"
SOFT = "p = torch.softmax(x @ self.w, -1)\n"
TAKEN = SOFT + "q = p.gather(1, y[:, None])[:, 0]\n"
ENTROPY = "z = x @ self.w\nl = z.logsumexp(-1) - z.gather(1, y[:, None])[:, 0]\nreturn l"

add("brier", SOFT + "return (p - F.one_hot(y, 128)).square().sum(-1)", GIVEN, args=TAKES, init=INIT)
add("entropy_of_labels", "return F.cross_entropy(x @ self.w, y, reduction='none')", GIVEN, args=TAKES, init=INIT)

LABELLED: tuple[Program, ...] = (
    *_pair("brier", "", "", ("multiplied out", TAKEN + "return p.square().sum(-1) - 2 * q + 1"),
           ("the label's by itself", TAKEN + "r = p.scatter(1, y[:, None], 0.0)\nreturn r.square().sum(-1) + (1 - q).square()"),
           args=TAKES, init=INIT),
    *_pair("entropy_of_labels", "", "", ("kept off zero", ENTROPY + ".clamp_min(1e-3)"),
           ("by a sum of exponentials", ENTROPY), args=TAKES, init=INIT),
)  # fmt: skip
