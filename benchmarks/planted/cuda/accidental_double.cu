// SPDX-License-Identifier: Apache-2.0
// Constants without an f suffix: the arithmetic runs in float64.
#include <cstdint>
__global__ void polynomial(float* out, const float* x, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
#pragma unroll
    for (int k = 0; k < 32; k++) v = v * 0.75 + 0.1;
    out[i] = v;
}
extern "C" void accidental_double(float* out, const float* x, int64_t n, void* stream) {
    polynomial<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(out, x, n);
}
