// SPDX-License-Identifier: Apache-2.0
// Every element takes as many steps as its own value says, so a warp lasts as long as its slowest lane.
#include <cstdint>
__global__ void walk(float* out, const float* x, int64_t n) {
    int64_t i = (int64_t)blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    float start = x[i], now = start;
    int steps = (int)(start * start * start * start * 200.0f);
    for (int s = 0; s < steps; s++) {
        if (now > 2.0f)
            now = now * 0.25f + 0.125f;
        else
            now = now * now * 0.5f + 1.0f;
    }
    out[i] = now;
}
extern "C" void own_pace(float* out, const float* x, int64_t n, void* stream) {
    walk<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(out, x, n);
}
