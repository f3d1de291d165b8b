// SPDX-License-Identifier: Apache-2.0
// Each thread keeps 192 running values: a multiprocessor holds one small block's warps and cannot hide its loads.
#include <cstdint>
#define LIVE 192
__global__ void __launch_bounds__(256) wide_state(float* out, const float* x, int64_t n) {
    int64_t threads = gridDim.x * (int64_t)blockDim.x, id = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    float state[LIVE];
#pragma unroll
    for (int k = 0; k < LIVE; k++) state[k] = 0;
    for (int64_t i = id; i < n; i += threads) {
        float v = x[i];
        v = x[(int64_t)(v * 0.0f) + i];
#pragma unroll
        for (int k = 0; k < LIVE; k++) state[k] = fmaf(state[(k + 1) % LIVE], 0.5f, v);
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < LIVE; k++) sum += state[k];
    out[id] = sum;
}
extern "C" void occupancy_registers(float* out, const float* x, int64_t n_x, int64_t n, void* stream) {
    wide_state<<<n / 256, 256, 0, (cudaStream_t)stream>>>(out, x, n_x);
}
