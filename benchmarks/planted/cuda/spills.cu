// SPDX-License-Identifier: Apache-2.0
// 96 running values in a block of 1024 threads: 64 registers a thread are not enough, the rest goes to memory.
#include <cstdint>
#define LIVE 96
__global__ void __launch_bounds__(1024, 1) too_many(float* out, const float* x, int64_t n) {
    int64_t threads = gridDim.x * (int64_t)blockDim.x, id = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    float state[LIVE];
#pragma unroll
    for (int k = 0; k < LIVE; k++) state[k] = (float)k;
    for (int64_t i = id; i < n; i += threads) {
        float v = x[i];
#pragma unroll
        for (int k = 0; k < LIVE; k++) state[k] = fmaf(state[(k + 7) % LIVE], 0.5f, v);
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < LIVE; k++) sum += state[k];
    out[id] = sum;
}
extern "C" void spills(float* out, const float* x, int64_t n_x, int64_t n, void* stream) {
    too_many<<<n / 1024, 1024, 0, (cudaStream_t)stream>>>(out, x, n_x);
}
