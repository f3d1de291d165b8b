# SPDX-License-Identifier: Apache-2.0
"""Predictions of today's model against peaks that were measured on an H200 before, on a machine without one.

python -m benchmarks.memory_restate MEASURED.json OUT.json

The modules are traced on the CPU with what torch would do on the device put in place of what it does here: cuDNN's
convolutions, the fused dropout, the memory-efficient attention and the fused RMS norm. Libraries were warm when those
peaks were measured, so no workspaces are in them.
"""

import contextlib
import json
import sys
import time
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F

from benchmarks.memory import summary
from benchmarks.memory_modules import SEEN
from benchmarks.provenance import commit
from kernelwright.limits import scratch
from kernelwright.limits.memory import memory


def dropout(x, p=0.5, training=True, inplace=False):
    """As on CUDA: one kernel, with a mask of a byte for each element."""
    return torch.native_dropout(x, p, training)[0] if training and p > 0 else x


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **_):
    """As on CUDA in float32."""
    call = torch.ops.aten._scaled_dot_product_efficient_attention
    return call(q, k, v, attn_mask, torch.is_grad_enabled(), dropout_p, is_causal)[0]


def rms_norm(x, shape, weight=None, eps=None):
    """As on CUDA: one kernel, which makes the result and a number for each row."""
    found = x.clone(), x[..., :1].clone()
    return found[0]


@contextlib.contextmanager
def elsewhere():
    """What differs on the device is put in place."""
    with contextlib.ExitStack() as stack:
        for where, name, new in (
            (F, "dropout", dropout), (F, "scaled_dot_product_attention", attention), (F, "rms_norm", rms_norm),
            (scratch, "_backend", lambda call: "Cudnn"), (scratch.Part, "of", lambda device: scratch.Part("cuda")),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(where, name, new))
        yield


def main():
    """Predict, compare, write."""
    given = json.loads(Path(sys.argv[1]).read_text(encoding="ascii"))
    rows = []
    for old in given["seen"]["rows"] if "seen" in given else given["rows"]:
        build, inputs, gradients = SEEN[old["name"]]
        with elsewhere():
            found = memory(build(), inputs(), gradients=gradients, device="cpu", warm=True)
        row = {"name": old["name"], "predicted": found.peak, "measured": old["measured"]}
        rows.append({**row, "error": found.peak / old["measured"] - 1, "unknown": list(found.unknown)})
        print(f"{old['name']:22} {found.peak:11d} predicted {old['measured']:11d} measured {rows[-1]['error']:+.2%}")
    result = {
        "command": ["python", "-m", "benchmarks.memory_restate", "h200/memory.json", "h200/memory.json"],
        "commit": commit(), "when": time.time(), "what": "torch.cuda.max_memory_allocated of a call, libraries warm",
        "device": given["device"], "machine": given.get("machine"),
        "measured_when": given.get("measured_when", given["when"]),
        "measured_with": given.get("measured_with", given.get("torch")), "seen": summary(rows) | {"rows": rows},
    }  # fmt: skip
    print({name: value for name, value in result["seen"].items() if name != "rows"})
    Path(sys.argv[2]).write_text(json.dumps(result, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
