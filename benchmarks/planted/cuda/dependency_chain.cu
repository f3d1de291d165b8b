// SPDX-License-Identifier: Apache-2.0
// One warp for each scheduler, each with one long chain of multiply-adds: every instruction waits for the one before.
#include <cstdint>
__global__ void chain(float* out, const float* x, int64_t n) {
    int64_t step = gridDim.x * (int64_t)blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        float v = x[i];
#pragma unroll 16
        for (int k = 0; k < 32768; k++) v = fmaf(v, 0.999f, 0.001f);
        out[i] = v;
    }
}
extern "C" void dependency_chain(float* out, const float* x, int64_t n, void* stream) {
    chain<<<132, 128, 0, (cudaStream_t)stream>>>(out, x, n);
}
