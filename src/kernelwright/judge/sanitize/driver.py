# SPDX-License-Identifier: Apache-2.0
"""Runs a candidate's first calls in a fresh process under a sanitizer: it says nothing, the sanitizer does.

A program of its own, copied beside ``skeletons.py`` and ``calls.pt`` and run there with the arguments FOLDER, ENTRY,
DEVICE and folders that the candidate imports from; it imports nothing of this project by name. Every tensor gets memory
of its own, of exactly its size.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import torch


def module(path: Path) -> ModuleType:
    """The Python file as a module under its own name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def main() -> None:
    """Call the entry on every case; ends without tidying up, which is not the candidate's."""
    folder, (file, name), device = Path(sys.argv[1]), sys.argv[2].split("::"), sys.argv[3]
    here = Path(__file__).parent
    skeletons = module(here / "skeletons.py")
    cases = torch.load(here / "calls.pt", weights_only=True)
    sys.path[:0] = [str(folder), *sys.argv[4:]]
    os.chdir(folder)
    entry = getattr(module(folder / file), name)
    for case in cases:
        arguments = skeletons.unflatten(case["init"], [leaf.clone() for leaf in case["init_leaves"]])
        made = entry(*arguments["args"], **arguments["kwargs"]).to(device)
        made.train(case["training"])
        made.load_state_dict(case["state"])
        for _ in range(2):
            leaves = [leaf.clone().to(device) for leaf in case["leaves"]]
            if not case["gradients"]:
                with torch.no_grad():
                    made(*skeletons.unflatten(case["skeleton"], leaves))
                continue
            leaves = [leaf.requires_grad_() if leaf.is_floating_point() else leaf for leaf in leaves]
            _, outputs = skeletons.flatten(made(*skeletons.unflatten(case["skeleton"], leaves)))
            roots = [out for out in outputs if out.requires_grad]
            if roots:
                torch.autograd.backward(roots, [torch.ones_like(out) for out in roots])
    if device != "cpu":
        torch.cuda.synchronize()
    sys.stdout.write("all calls made\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
