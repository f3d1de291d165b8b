# SPDX-License-Identifier: Apache-2.0
"""Cold start: from nothing to a first result, and the same where imports and builds are behind it.

Everything of a cold start happens in folders and processes made for it: the sources are compiled again, a new
interpreter imports torch, and what compiles itself finds an empty cache. A second process of the same interpreter,
with what was built, gives the part that is left. The first result of either is compared in full, outside the clock.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from kernelwright.judge import measure
from kernelwright.judge.also.scene import Contender, Scene
from kernelwright.judge.child import Zygote


def taken(scene: Scene) -> list[tuple[str, str]]:
    """In seconds, of every contender: ``cold.PROGRAM.included_s`` is ``build_s`` (its compiler), ``import_s`` (a new
    interpreter with torch) and ``first_s`` (its own import, weights, the first call and what that compiles) together;
    ``excluded_s`` is ``first_s`` again where all of that is built and torch is loaded."""
    return scene.each("cold", lambda contender: _cold(scene, contender))


def _cold(scene: Scene, contender: Contender) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="kernelwright-cold-") as place, scene.alone():
        Path(place).chmod(0o755)
        fresh = contender if contender.own is None else dataclasses.replace(contender, own=Path(place) / "own")
        nothing = measure.clock()
        folder = scene.folder(fresh, Path(place) / "built")
        built = measure.clock()
        zygote = scene.programs.fresh()
        imported = measure.clock()
        try:
            first, again = (_first(scene, fresh, zygote, folder) for _ in range(2))
        finally:
            zygote.close()
    build, interpreter = (built - nothing) * 1e-9, (imported - built) * 1e-9
    return {
        "included_s": build + interpreter + first,
        "excluded_s": again,
        "build_s": build,
        "import_s": interpreter,
        "first_s": first,
    }


def _first(scene: Scene, contender: Contender, zygote: Zygote, folder: Path) -> float:
    """Seconds from a fork to its first result in the judge's hands, which is then compared."""
    began = measure.clock()
    with scene.loaded(
        contender, scene.programs.start(zygote, scene.device, folder, contender.seconds, contender.own)
    ) as program:
        scene.first_call(program)
        took = (measure.clock() - began) * 1e-9
        scene.checked(program)
    return took
