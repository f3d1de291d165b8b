# SPDX-License-Identifier: Apache-2.0
"""A confined program that runs a tester's source and writes the inputs it makes as raw bytes; run by path, alone.

``tester_child.py CASES.py FOLDER MOST``: FOLDER gets ``index.json`` and one ``CASE.TENSOR.bin`` for each tensor.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of an argument tree, depth first."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in tensors(item)]
    return [leaf for item in value for leaf in tensors(item)] if isinstance(value, list | tuple) else []


def main() -> None:
    """Write what ``cases()`` yields, case by case."""
    source, folder, most = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    spec = importlib.util.spec_from_file_location("cases", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows: list[dict[str, Any]] = []
    for pair in module.cases():
        if len(rows) >= most:
            break
        name, inputs = pair
        leaves = [leaf.detach().cpu().contiguous() for leaf in tensors(inputs)]
        for index, leaf in enumerate(leaves):
            (folder / f"{len(rows)}.{index}.bin").write_bytes(leaf.view(-1).view(torch.uint8).numpy().tobytes())
        shapes = [{"shape": list(leaf.shape), "dtype": str(leaf.dtype).removeprefix("torch.")} for leaf in leaves]
        rows.append({"name": str(name), "tensors": shapes})
        (folder / "index.json").write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
