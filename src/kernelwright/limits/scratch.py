# SPDX-License-Identifier: Apache-2.0
"""What an operator's kernel takes for itself while it runs, beyond its results, in bytes.

Each rule states the source it was read from; an operator without a rule is taken to need nothing. What the algorithm
that a library chooses wants cannot be known beforehand: ``UNKNOWN`` names such operators, and the rule is the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelwright.limits import cudnn
from kernelwright.limits.blocks import rounded

UNKNOWN = {
    "convolution": "cuDNN's convolution: its workspace is its own choice of algorithm",
    "recurrent": "a library's recurrent layer: workspace and what it keeps for the backward pass are its own choice",
}


@dataclass(frozen=True, slots=True)
class Part:
    """The processor that kernels are written for. The defaults are those of an H200."""

    kind: str
    processors: int = 132
    threads: int = 2048
    """That fit on one processor at once."""
    major: int = 9
    """Compute capability."""
    lanes: int = 16
    """float32 numbers in one vector register of a CPU."""
    here: bool = False
    """Whether this process has it, so that libraries on it can be asked."""

    @staticmethod
    def of(device: str) -> Part:
        """What torch says of a device."""
        if device != "cpu" and torch.cuda.is_available():
            found = torch.cuda.get_device_properties(torch.device(device))
            threads = int(found.max_threads_per_multi_processor)
            return Part("cuda", int(found.multi_processor_count), threads, int(found.major), here=True)
        wide = "AVX512" in torch.backends.cpu.get_cpu_capability()
        return Part(torch.device(device).type, lanes=16 if wide else 8)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator: its arguments by name, and the tensors that it returned."""

    name: str
    given: dict[str, Any]
    results: tuple[torch.Tensor, ...]
    part: Part


Rule = Callable[[Call], Sequence[int]]


def scratch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any, part: Part) -> list[int]:
    """Sizes of what the kernel of this call holds at once beside its results, at its worst moment."""
    space, _, name = str(func._schema.name).partition("::")
    rules = (RULES if part.kind == "cpu" else RULES | ON_CUDA).get(name, ()) if space == "aten" else ()
    if not rules:
        return []
    made = results if isinstance(results, (tuple, list)) else (results,)
    call = Call(name, _named(func, args, kwargs), tuple(one for one in made if isinstance(one, torch.Tensor)), part)
    return [size for rule in rules for size in rule(call) if size > 0]


def unknown(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any, part: Part) -> str:
    """Why what this call takes inside cannot be known beforehand, or empty where it can."""
    name = str(func._schema.name).removeprefix("aten::")
    if name in ("_cudnn_rnn", "_cudnn_rnn_backward", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"):
        return UNKNOWN["recurrent"]
    if name not in ("convolution", "convolution_backward") or part.kind == "cpu":
        return ""
    call = Call(name, _named(func, args, kwargs), tuple(wanted(func, args, kwargs, results)), part)
    found = _backend(call)
    return UNKNOWN["convolution"] if found.startswith("Cudnn") and _by_cudnn(call, found) is None else ""


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults too."""
    given = {about.name: about.default_value for about in func._schema.arguments if about.has_default_value()}
    return given | {about.name: value for about, value in zip(func._schema.arguments, args, strict=False)} | kwargs


def wanted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> list[torch.Tensor]:
    """The tensors that a call returns, without gradients that its ``output_mask`` leaves out: kernels do not make
    those, some of their stand-ins without data do (native_batch_norm_backward)."""
    mask = _named(func, args, kwargs).get("output_mask") if "backward" in func._schema.name else None
    if mask is not None and isinstance(results, tuple):
        results = [one for one, kept in zip(results, mask, strict=False) if kept]
    return [one for one in tree_leaves(results) if isinstance(one, torch.Tensor)]


def nbytes(tensor: torch.Tensor) -> int:
    """Of the elements, each counted once."""
    return tensor.numel() * tensor.element_size()


def dense(tensor: torch.Tensor) -> bool:
    """In row-major order, or channels last."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])
    return tensor.is_contiguous() or last


def _copies(*names: str) -> Rule:
    """Kernels that begin with ``contiguous()`` copy operands that are not."""

    def rule(call: Call) -> list[int]:
        found = [call.given.get(name) for name in names]
        return [nbytes(one) for one in found if isinstance(one, torch.Tensor) and not dense(one)]

    return rule


def _products(*names: str) -> Rule:
    """BLAS takes matrices with one dimension of step 1 and no overlap; others are copied first
    (prepare_matrix_for_cublas in ATen/native/cuda/Blas.cpp, addmm_impl_cpu_ in ATen/native/LinearAlgebra.cpp)."""

    def taken(one: torch.Tensor) -> bool:
        (rows, columns), (down, along) = one.shape[-2:], one.stride()[-2:]
        return (along == 1 and down >= max(1, columns)) or (down == 1 and along >= max(1, rows))

    def rule(call: Call) -> list[int]:
        found = [call.given.get(name) for name in names]
        return [nbytes(one) for one in found if isinstance(one, torch.Tensor) and not taken(one)]

    return rule


def _mask(call: Call) -> list[int]:
    """``_safe_softmax`` looks for rows of minus infinity: a byte for every element
    (ATen/native/transformers/attention.cpp)."""
    return [call.given["self"].numel()]


def _delta(call: Call) -> list[int]:
    """The memory-efficient attention sums gradient times output in float32 outside its kernel, but for half precision
    (ATen/native/transformers/cuda/attention_backward.cu: kKernelComputesDelta)."""
    out = call.given["out"]
    return [4 * out.numel(), 4 * out.numel() // out.shape[-1]] if out.dtype == torch.float32 else []


def _transformed(call: Call) -> list[int]:
    """cuFFT's transforms to real numbers may write over their input, so that is copied first
    (ATen/native/cuda/SpectralOps.cpp: _fft_c2r_cufft)."""
    return [nbytes(call.given["self"])]


def _distances(call: Call) -> list[int]:
    """Distances by one product of matrices: both operands are there once more, each two columns wider
    (ATen/native/Distance.cpp: _euclidean_dist)."""
    sides = [call.given["x1"], call.given["x2"]]
    return [(one.shape[-1] + 2) * (one.numel() // max(1, one.shape[-1])) * one.element_size() for one in sides]


def _recurrent(call: Call) -> list[int]:
    """oneDNN's layer of an LSTM, at the least: both weights packed (ATen/native/mkldnn/RNN.cpp), the states of all
    steps once more in its scratchpad, and an input that is not in order copied. Which kernel does it, and whether that
    keeps the gates too, is oneDNN's choice."""
    packed = [nbytes(call.given[name]) for name in ("weight0", "weight1")]
    return [*packed, nbytes(call.results[0]), *_copies("input")(call)]


def _weighted(call: Call) -> list[int]:
    """The gradient of a softmax begins with gradient times output (ATen/native/cuda/SoftMax.cu:
    softmax_backward_cuda_out); that of a log-softmax does not."""
    return [nbytes(call.given["grad_output"])]


def _backend(call: Call) -> str:
    """The library that torch would choose for a convolution."""
    given = dict(call.given)
    grad, _ = given.pop("grad_output", None), given.pop("output_mask", None)
    given.pop("bias" if grad is not None else "bias_sizes", None)
    if grad is not None:
        given["bias"] = None
    found = str(torch._C._select_conv_backend(**given)).rpartition(".")[2]
    return found if found.isalnum() else "MkldnnTranspose"  # the one that torch's binding has no name for


def _channels(call: Call, tensor: torch.Tensor, *, weight: bool = False) -> int:
    """Bytes of a tensor in oneDNN's order: channels in groups of a vector register's width."""
    sizes, lanes = list(tensor.shape), call.part.lanes
    for place in (0, 1) if weight else (1,):
        if sizes[place] >= lanes:
            sizes[place] = rounded(sizes[place], lanes)
    return math.prod(sizes) * tensor.element_size()


def _ordered(call: Call) -> bool:
    """Whether oneDNN takes the activations as they are: channels last."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(call.given["input"].dim())
    if last is None:
        return False
    return any(call.given[name].is_contiguous(memory_format=last) and not call.given[name].is_contiguous()
               for name in ("input", "weight"))  # fmt: skip


def _columns(call: Call, backend: str) -> list[int]:
    """Convolutions as matrix products: patches side by side, of the whole batch at a time on a CPU and for three
    dimensions, else of one image (ATen/native: ConvolutionMM2d.cpp, ConvolutionMM3d.cpp, NaiveDilatedConvolution.cpp,
    NaiveConvolutionTranspose2d.cpp)."""
    x, weight = call.given["input"], call.given["weight"]
    kernel = math.prod(weight.shape[2:])
    out = call.given.get("grad_output", call.results[0])
    if "Transpose" in backend:
        return [math.prod(weight.shape[1:]) * math.prod(x.shape[2:]) * x.element_size()]
    if kernel == 1 and backend in ("Slow2d", "Slow3d"):
        return []
    images = x.shape[0] if backend == "Slow3d" or (backend == "Slow2d" and call.part.kind == "cpu") else 1
    return [images * x.shape[1] * kernel * math.prod(out.shape[2:]) * x.element_size()]


def _by_cudnn(call: Call, backend: str) -> list[int] | None:
    """What cuDNN says, where it can be asked; asked twice, it answers from memory."""
    return cudnn.inside(backend, call.given, call.results) if call.part.here else None


def _convolution(call: Call) -> list[int]:
    """oneDNN: blocked copies of input, weight and result, then the plain result beside the blocked one
    (ATen/native/mkldnn/Conv.cpp; ONEDNN_VERBOSE=1 shows them). Transposed ones work channels last, and their result is
    there three times: oneDNN's, torch's copy of it, and that in order (ATen/native/mkldnn/MKLDNNConversions.cpp).

    cuDNN is asked. Where it does not answer: kernels for tensor cores want channels last and copy what comes otherwise,
    input and weight at the least (NVIDIA's guide to convolutional layers, layouts).
    """
    backend = _backend(call)
    x, weight, out = call.given["input"], call.given["weight"], call.results[0]
    if backend in ("Mkldnn", "MkldnnTranspose"):
        filters = _channels(call, weight, weight=True)
        if _ordered(call):
            return [filters]
        blocked, times = _channels(call, out), 2 if backend == "MkldnnTranspose" else 1
        return [max(_channels(call, x) + filters + blocked, blocked + times * nbytes(out)) - nbytes(out)]
    if backend in ("Cudnn", "CudnnTranspose"):
        found, least = _by_cudnn(call, backend), [] if _ordered(call) else [nbytes(x), nbytes(weight)]
        return least if found is None else found
    return _columns(call, backend) if backend.startswith("Slow") else []


def _convolution_backward(call: Call) -> list[int]:
    """As above, the gradient of the input first, that of the weight then."""
    backend = _backend(call)
    x, weight, grad = (call.given[name] for name in ("input", "weight", "grad_output"))
    wants = call.given["output_mask"]
    if backend in ("Mkldnn", "MkldnnTranspose"):
        filters = _channels(call, weight, weight=True)
        if _ordered(call):
            return [filters]
        coming, given = _channels(call, grad), _channels(call, x)
        held = nbytes(x) if wants[0] else 0
        moments = [coming + filters + given, given + held] if wants[0] else []
        moments += [held + given + coming + filters] if wants[1] else []
        return [max(moments, default=0) - held]
    if backend in ("Cudnn", "CudnnTranspose"):
        found = _by_cudnn(call, backend)
        least = [] if _ordered(call) else [nbytes(grad), nbytes(x) if wants[1] else 0, nbytes(weight)]
        return least if found is None else found
    return _columns(call, backend) if backend.startswith("Slow") else []


def _reduction(width: int | None = None) -> Rule:
    """``width``: bytes of one running result; None: 8 for float64 and integers, else 4."""

    def rule(call: Call) -> list[int]:
        x, over = call.given["self"], call.given.get("dim")
        dims = range(x.dim()) if over is None or over == [] else [over] if isinstance(over, int) else over
        wide = x.dtype.is_complex or x.dtype == torch.float64 or not x.dtype.is_floating_point
        return list(reduction(x, [d % max(x.dim(), 1) for d in dims], width or (8 if wide else 4), call.part))

    return rule


def reduction(x: torch.Tensor, dims: Sequence[int], width: int, part: Part) -> tuple[int, int]:
    """Bytes of what blocks of one reduction leave for each other, and of their counters; 0 where each result is made by
    one block (ATen/native/cuda/Reduce.cuh: setReduceConfig, global_memory_size, semaphore_size).

    Where results lie side by side, every thread of a block has a place for each of them, so columns of a large matrix
    take a multiple of what they hold: 64 MiB for 4096 rows of 2048 floats.
    """
    sizes = list(zip(x.shape, x.stride(), range(x.dim()), strict=True))
    summed = _joined([(size, step) for size, step, dim in sizes if dim in dims])
    kept = _joined([(size, step) for size, step, dim in sizes if dim not in dims])
    inputs, outputs = math.prod(size for size, _ in summed), math.prod(size for size, _ in kept)
    if min(inputs, outputs) == 0 or inputs == 1:
        return 0, 0
    along = not kept or summed[0][1] < kept[0][1]
    vector = 1
    if along:
        width_limit, height_limit = inputs, outputs
        if summed[0][1] == 1 and inputs > 128 and len(summed) == 1:
            width_limit //= 4
    else:
        width_limit, height_limit = outputs, inputs
        if kept[0][1] == 1:
            steps = [kept[0][0], *(step for _, step in [*summed, *kept[1:]])]
            vector = next(v for v in (4, 2, 1) if all(step % v == 0 for step in steps))
            width_limit //= vector
    return _staged(inputs, outputs, along, vector, (width_limit, height_limit), width, part)


def _staged(
    inputs: int, outputs: int, along: bool, vector: int, limits: tuple[int, int], width: int, part: Part
) -> tuple[int, int]:
    most = 512 // vector
    across, down = (min(most, 1 << (max(limit, 1).bit_length() - 1)) for limit in limits)
    wide = min(across, 32)
    high = min(down, most // wide)
    wide = min(across, most // high)
    step_in, step_out = (wide, 1) if along else (1, wide)
    values = -(-inputs // step_in)
    if not (values >= 16 * high or values >= 256):
        return 0, 0
    values = -(-inputs // (step_in * high))
    grid, target = -(-(outputs // vector) // step_out), part.processors * (part.threads // (wide * high))
    if values < 256 or grid > target:
        return 0, 0
    shares = max(min(-(-target // grid), -(-values // 16)), -(-values // 256))
    if shares <= 1:
        return 0, 0
    return width * outputs * shares * (1 if along else wide * vector), 4 * grid


def _joined(sizes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dimensions by step, those that follow each other without a gap as one."""
    found: list[tuple[int, int]] = []
    for size, step in sorted((pair for pair in sizes if pair[0] != 1), key=lambda pair: pair[1]):
        if found and found[-1][0] * found[-1][1] == step:
            found[-1] = found[-1][0] * size, found[-1][1]
        else:
            found.append((size, step))
    return found


Rules = tuple[Rule, ...]
_NORMALISED: Rules = (_copies("input", "grad_out", "X", "dY"),)
_POOLED: Rules = (_copies("self", "input", "grad_output"),)
_SOFTMAX: Rules = (_copies("self", "grad_output", "output"),)
_PLAIN: dict[str, Rules] = {
    "mm": (_products("self", "mat2"),),
    "addmm": (_products("mat1", "mat2"),),
    "bmm": (_products("self", "mat2"),),
    "baddbmm": (_products("batch1", "batch2"),),
    "convolution": (_convolution,),
    "convolution_backward": (_convolution_backward,),
    "_safe_softmax": (_mask,),
    "mkldnn_rnn_layer": (_recurrent,),
    "_euclidean_dist": (_distances,),
}
RULES: dict[str, Rules] = _PLAIN | {
    name: rules
    for rules, names in (
        (_NORMALISED, "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward"),
        (_POOLED, "max_pool2d_with_indices avg_pool2d upsample_bilinear2d upsample_nearest2d max_pool3d_with_indices"),
        (_SOFTMAX, "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data"),
    )
    for name in names.split()
}
"""By the operator's name; those of CUDA come before these there."""
ON_CUDA: dict[str, Rules] = {
    "_scaled_dot_product_efficient_attention_backward": (_delta,),
    "_softmax_backward_data": (*_SOFTMAX, _weighted),
    "_fft_c2r": (_transformed,),
    **dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "linalg_vector_norm"), (_reduction(),)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), (_reduction(16),)),
}
