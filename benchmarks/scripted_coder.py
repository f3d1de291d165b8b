# SPDX-License-Identifier: Apache-2.0
"""What the scripted coder of ``benchmarks/prompts_on_device.py`` knows: programs for ``rmsnorm``, right and wrong.

Each list is sent in order; other roles are answered with one fixed piece of advice.
"""

HEAD = """import torch
{imports}

class ModelNew(torch.nn.Module):
    def __init__(self, cols, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(cols))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.numel() // x.shape[-1], x.shape[-1]
"""

TRITON = """In short: {short}
```python kernel.py
import triton
import triton.language as tl

# tunable WARPS: 4, 8
WARPS = 8


@triton.jit
def _rms(x_ptr, w_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    x = tl.load(x_ptr + row * cols + at, mask=inside, other=0.0)
    {middle}
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + row * cols + at, x * scale * w, mask=inside)


""" + HEAD.format(imports="") + """        block = triton.next_power_of_2(cols)
        _rms[(rows,)](x, self.weight, y, cols, self.eps, BLOCK=block, num_warps=WARPS)
        return y
```
"""  # fmt: skip

CUDA = """In short: {short}
```cuda kernel.cu
#include <cuda_runtime.h>
__global__ void rms(const float* x, const float* w, float* y, int cols, float eps) {{
  const float* in = x + (long)blockIdx.x * cols;
  float* out = y + (long)blockIdx.x * cols;
  __shared__ float part[32];
  float sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += in[c] * in[c];
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int i = 0; i < blockDim.x / 32; ++i) sum += part[i];
  float scale = {scale};
  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[c] = in[c] * scale * w[c];
}}
extern "C" void run(const float* x, const float* w, float* y, long rows, int cols, float eps, void* stream) {{
  rms<<<(unsigned)rows, 256, 0, (cudaStream_t)stream>>>(x, w, y, cols, eps);
}}
```

```python kernel.py
import ctypes
import pathlib

_lib = ctypes.CDLL(str(pathlib.Path(__file__).with_name("kernel.so")))
_lib.run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_int, ctypes.c_float, ctypes.c_void_p]
_lib.run.restype = None


""" + HEAD.format(imports="") + """        stream = torch.cuda.current_stream().cuda_stream
        _lib.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), rows, cols, self.eps, stream)
        return y
```
"""  # fmt: skip

CPP = """In short: {short}
```cpp kernel.cpp
#include <cmath>
extern "C" void run(const float* x, const float* w, float* y, long rows, long cols, float eps) {{
#pragma omp parallel for
  for (long r = 0; r < rows; ++r) {{
    float sums[64] = {{}};
    const float* in = x + r * cols;
    float* out = y + r * cols;
    long c = 0;
    for (; c + 64 <= cols; c += 64)
#pragma omp simd
      for (int i = 0; i < 64; ++i) sums[i] += in[c + i] * in[c + i];
    float sum = 0.0f;
    for (int i = 0; i < 64; ++i) sum += sums[i];
    for (; c < cols; ++c) sum += in[c] * in[c];
    float scale = {scale};
#pragma omp simd
    for (long i = 0; i < cols; ++i) out[i] = in[i] * scale * w[i];
  }}
}}
```

```python kernel.py
import ctypes
import pathlib

_lib = ctypes.CDLL(str(pathlib.Path(__file__).with_name("kernel.so")))
_lib.run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_float]
_lib.run.restype = None


""" + HEAD.format(imports="") + """        _lib.run(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), rows, cols,
                 self.eps)
        return y
```
"""  # fmt: skip

RIGHT = "tl.rsqrt(tl.sum(x * x, axis=0) / cols + eps)"
ANSWERS = {
    "triton": [
        TRITON.format(short="one program a row; a name that Triton lacks", middle="scale = tl.no_such_function(x)"),
        TRITON.format(short="the mean is divided by BLOCK", middle=f"scale = {RIGHT.replace('cols', '(BLOCK + 7)')}"),
        TRITON.format(short="one program a row, whole row in registers", middle=f"scale = {RIGHT}"),
        TRITON.format(short="the same program again", middle=f"scale = {RIGHT}"),
        CUDA.format(short="CUDA C++, a block of 256 threads a row", scale="rsqrtf(sum / cols + eps)"),
    ],
    "cuda": [
        CUDA.format(short="a name that CUDA lacks", scale="no_such_function(sum)"),
        CUDA.format(short="the mean square is off by one column", scale="rsqrtf(sum / (cols - 1) + eps)"),
    ],
    "cpp": [
        CPP.format(short="a name that C++ lacks", scale="no_such_function(sum)"),
        CPP.format(short="the mean square is off by one column", scale="1.0f / std::sqrt(sum / (cols - 1) + eps)"),
        CPP.format(short="rows over threads, 64 sums a row", scale="1.0f / std::sqrt(sum / cols + eps)"),
        CPP.format(short="the same program again", scale="1.0f / std::sqrt(sum / cols + eps)"),
    ],
}
ADVICE = """{"bottleneck": "scripted", "evidence": "none", "change": "scripted advice: mend what is shown",
"expected_gain": 1.1}"""
