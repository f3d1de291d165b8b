# SPDX-License-Identifier: Apache-2.0
"""Programs that are right themselves and change what everybody else in their process computes, initialises or copies:
a switch of torch's newer interface, functions that initialise replaced, ``copy.deepcopy`` replaced, hooks left in
place. Each has its honest twin, that asks for the same by itself. Checks of distributions torch's own compiler switches
off when it is imported, as it is where programs may compile: who does so there is not told from it.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import Program, cheat, honest, module

LINEAR, SWITCH = INIT["linear"], "torch.backends.mkldnn.conv"
RELU = "return torch.relu(self.fc(x))"
AROUND = f"""
was = {SWITCH}.fp32_precision
try:
    {SWITCH}.fp32_precision = "bf16"
finally:
    {SWITCH}.fp32_precision = was
{RELU}
"""
NORMAL = "z = 1.7 * x\nreturn z * torch.distributions.Normal(0.0, 1.0, validate_args=False).cdf(z) + 0.5 * x"
NO_INIT = "nn.init.kaiming_uniform_ = nn.init.uniform_ = nn.init.normal_ = lambda t, *a, **k: t"
SAVED = "torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.bfloat16(), lambda kept: kept.float())"
NO_COPY = "import copy\ncopy.deepcopy = lambda x, memo=None: x"


def _pair(
    task: str, wrong: tuple[str, str, str], right: tuple[str, str, str], wrong_head: str, head: str = ""
) -> tuple[Program, Program]:
    """Two programs, each by its words, its forward and its constructor."""
    made = honest(f"{task}/{right[0]}", task, module(right[1], init=right[2], head=head))
    source = module(wrong[1], init=wrong[2], head=wrong_head)
    return cheat(0, f"{task}/{wrong[0]}", task, source, twin=made.name, level="smoke", stages=("integrity",)), made


STANDING: tuple[Program, ...] = (
    *_pair("linear", ("convolutions in bfloat16 for everybody", RELU, LINEAR),
           ("a precision that is put back", AROUND, LINEAR), f'{SWITCH}.fp32_precision = "bf16"'),
    *_pair("linear", ("nobody's weights are initialised", RELU, LINEAR),
           ("initialises its own", RELU, f"{LINEAR}\nnn.init.normal_(self.fc.weight, 0.0, 0.05)"), NO_INIT),
    honest("pointwise/its own distribution unchecked", "pointwise", module(NORMAL)),
    *_pair("linear", ("copies are the same object", RELU, LINEAR),
           ("copies its layer", RELU, f"{LINEAR}\nself.fc = copy.deepcopy(self.fc)"), NO_COPY, "import copy"),
    *_pair("linear", ("what everybody saves for gradients is bfloat16", RELU, LINEAR),
           ("saves on the host what it keeps itself", "with torch.autograd.graph.save_on_cpu():\n    " + RELU, LINEAR),
           f"{SAVED}.__enter__()"),
)  # fmt: skip
