# SPDX-License-Identifier: Apache-2.0
"""Runs or compiles Triton candidates without a GPU: `python triton_probe.py run|compile CASES.pt OUTPUTS.pt`.

A case is a dict of path, init, state and inputs; its answer is what the candidate returns, or the text of an error.

``run`` uses Triton's interpreter (libdevice, which it lacks, is replaced by torch's own functions); ``compile``
makes sm_90 machine code of every launch and writes its shared memory, registers and spills.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile


def load(path, name):
    """The candidate as a module, accepting CPU tensors."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module._DEVICE = "cpu"
    return module


class FakeLibdevice:
    """Elementwise functions over interpreter tensors, through torch in their own type."""

    def __getattr__(self, name):
        import numpy
        import torch
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        function = {"rint": torch.round}.get(name) or getattr(torch, name)

        def call(*args):
            double = any(a.handle.data.dtype == numpy.float64 for a in args)
            made, of = (numpy.float64, tl.float64) if double else (numpy.float32, tl.float32)
            data = function(*[torch.from_numpy(numpy.array(a.handle.data, dtype=made)) for a in args]).numpy()
            kind = tl.core.block_type(of, list(data.shape)) if data.ndim else of
            return tl.core.tensor(TensorHandle(data, of), kind)

        return call


def mend_interpreter():
    """Indices of Triton 3.6's interpreter are arrays of one element, which numpy refuses as a number from 2.4 on."""
    from triton.runtime import interpreter

    known = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        known(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    interpreter._patch_lang_tensor = patched


class Recorder:
    """Stands in for a kernel and keeps what it is launched with."""

    def __init__(self, kernel, launches):
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid):
        return lambda *args, **options: self.launches.append((self.kernel, args, options))


def types(kernel, args):
    """Signature, constants and divisibility of one launch, as the launcher would specialise them."""
    import torch

    names = {torch.float32: "fp32", torch.int64: "i64", torch.bool: "i1", torch.float16: "fp16", torch.bfloat16: "bf16"}
    names |= {torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.float64: "fp64"}
    signature, constants, attributes = {}, {}, {}
    for position, (parameter, value) in enumerate(zip(kernel.params, args, strict=True)):
        if parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            constants[(position,)] = value
            continue
        if isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{names[value.dtype]}"
            attributes[(position,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        elif hasattr(value, "block_shape"):
            signature[parameter.name] = f"tensordesc<{names[value.base.dtype]}{list(value.block_shape)}>"
        elif value == 1:
            signature[parameter.name] = "constexpr"
            constants[(position,)] = 1
        else:
            signature[parameter.name] = "i32"
            if value % 16 == 0:
                attributes[(position,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def compile_launch(kernel, args, options):
    """Registers, spilled bytes, shared memory and widest global access of one launch on sm_90."""
    import re

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = types(kernel, args)
    source = ASTSource(kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    folder = os.path.dirname(triton.__file__)
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        file.write(compiled.asm["ptx"].encode())
        file.flush()
        tool = os.path.join(folder, "backends", "nvidia", "bin", "ptxas")
        said = subprocess.run(
            [tool, "-v", "-arch=sm_90a", file.name, "-o", "/dev/null"], capture_output=True, text=True, check=True
        ).stderr
    text = compiled.asm["ptx"]
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global.*?\], \[.*?\], 0x(\w+)", text)
    return {
        "kernel": kernel.__name__,
        "registers": int(re.search(r"Used (\d+) registers", said)[1]),
        "spills": int(re.search(r"(\d+) bytes spill stores", said)[1]),
        "shared": compiled.metadata.shared,
        "wide": "ld.global" in text and ".v4.b32" in text,
        "copies": sorted({int(size, 16) for size in copies}),
        "tensor_cores": "wgmma" in text,
    }


def refuse(*_, **__):
    """Stands in for the reference's forward."""
    raise AssertionError("the candidate fell back to the reference")


def answer(mode, case, number):
    """Result of one case in one mode."""
    import torch
    from triton.runtime import JITFunction

    module = load(case["path"], f"candidate{number}")
    model = module.ModelNew(*case["init"]).eval()
    model.load_state_dict(case["state"], strict=True)
    module.Model.forward = refuse
    launches = []
    if mode == "run":
        module.libdevice = FakeLibdevice()
    else:
        for name, kernel in list(vars(module).items()):
            numbered = name.startswith(("_k", "_f")) and name[2:3].isdigit()
            if isinstance(kernel, JITFunction) and (numbered or name in ("_peak", "_cut")):
                setattr(module, name, Recorder(kernel, launches))
    with torch.no_grad():
        found = model(*case["inputs"])
    return found if mode == "run" else [compile_launch(*launch) for launch in launches]


def main():
    """See the module."""
    mode, cases, outputs = sys.argv[1:]
    if mode == "run":
        os.environ["TRITON_INTERPRET"] = "1"
    import traceback

    import torch

    torch.set_num_threads(1)
    if mode == "run":
        mend_interpreter()
    answers = []
    for number, case in enumerate(torch.load(cases)):
        try:
            answers.append(answer(mode, case, number))
        except Exception:  # noqa: BLE001 (a candidate can raise anything)
            answers.append(traceback.format_exc()[-2000:])
    torch.save(answers, outputs)


if __name__ == "__main__":
    main()
