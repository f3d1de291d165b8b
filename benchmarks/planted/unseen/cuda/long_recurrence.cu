// SPDX-License-Identifier: Apache-2.0
// A filter that runs along time: each sample waits for the one before, a channel for each thread.
#include <cstdint>
__global__ void filter(float* out, const float* x, int channels, int steps) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    float state = x[c];
    for (int t = 0; t < steps; t++) {
        state = fmaf(state, 0.9f, 0.05f);
        state = fmaf(state, 1.01f, -0.001f);
        state = fmaf(state, 0.99f, 0.002f);
    }
    out[c] = state;
}
extern "C" void long_recurrence(float* out, const float* x, int64_t n, void* stream) {
    filter<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(out, x, n, 20000);
}
