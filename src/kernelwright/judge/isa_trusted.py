# SPDX-License-Identifier: Apache-2.0
"""Imported by the zygote whose forks compile for a CPU: vector instructions that the CPU has are not tried first.

Of AVX2 and AVX-512 torch's compiler goes by its settings (``programs.TRUSTING``). Of what goes with them, VNNI,
bfloat16 and AMX, it compiles a file each all the same, and has an interpreter load it: six files, 4.5 s before the
first kernel on two cores, and six interpreters in every process after that (torch 2.13). One that the compiler does not
know, as g++ 12 does not know -mamx-fp16, shows in the primer, and all are tried then. A torch that keeps this elsewhere
tries them.
"""

from typing import Any

from torch._inductor import config, cpu_vec_isa

_builds: Any = getattr(cpu_vec_isa.VecISA, "check_build", None)


def _trusted(self: Any, code: str) -> bool:
    return bool(getattr(config.cpp, "vec_isa_ok", None)) or bool(_builds(self, code))


if _builds is not None:
    cpu_vec_isa.VecISA.check_build = _trusted  # type: ignore[method-assign]
