// SPDX-License-Identifier: Apache-2.0
// How many values fall into each of four bins, counted straight in device memory.
#include <cstdint>
__global__ void nothing(float* bins) {
    if (threadIdx.x < 4) bins[threadIdx.x] = 0.0f;
}
__global__ void count(float* bins, const float* values, int64_t many) {
    for (int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; at < many; at += gridDim.x * (int64_t)blockDim.x) {
        int bin = min(3, max(0, (int)(values[at] * 4.0f)));
        atomicAdd(&bins[bin], 1.0f);
    }
}
extern "C" void histogram(float* out, const float* x, int64_t n_x, void* stream) {
    nothing<<<1, 32, 0, (cudaStream_t)stream>>>(out);
    count<<<512, 512, 0, (cudaStream_t)stream>>>(out, x, n_x);
}
