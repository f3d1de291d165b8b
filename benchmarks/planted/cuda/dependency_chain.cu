// SPDX-License-Identifier: Apache-2.0
// One long chain of multiply-adds in each of few warps: every instruction waits for the one before.
#include <cstdint>
__global__ void chain(float* out, const float* x, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
#pragma unroll 16
    for (int k = 0; k < 65536; k++) v = fmaf(v, 0.999f, 0.001f);
    out[i] = v;
}
extern "C" void dependency_chain(float* out, const float* x, int64_t n, void* stream) {
    chain<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(out, x, n);
}
