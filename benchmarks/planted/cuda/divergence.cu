// SPDX-License-Identifier: Apache-2.0
// Neighbouring lanes take different branches, each a long computation of its own.
#include <cstdint>
__device__ __noinline__ float branch(float v, int kind, int trips) {
    for (int k = 0; k < trips; k++) v = fmaf(v, 0.5f + 0.01f * kind, 0.25f) ;
    return v;
}
__global__ void by_lane(float* out, const float* x, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    switch (i % 8) {
    case 0: v = branch(v, 0, 40); break;
    case 1: v = __sinf(v); for (int k = 0; k < 41; k++) v = fmaf(v, v, 0.1f); break;
    case 2: for (int k = 0; k < 42; k++) v = fmaf(v, -0.5f, 1.0f); break;
    case 3: for (int k = 0; k < 43; k++) v = fmaxf(v * 0.9f, 0.1f); break;
    case 4: for (int k = 0; k < 44; k++) v = fminf(v * 1.1f, 1.0f); break;
    case 5: for (int k = 0; k < 45; k++) v = v * v * 0.3f; break;
    case 6: for (int k = 0; k < 46; k++) v = v * 0.3f + v * v; break;
    default: for (int k = 0; k < 47; k++) v = fabsf(v - 0.2f); break;
    }
    out[i] = v;
}
extern "C" void divergence(float* out, const float* x, int64_t n, void* stream) {
    by_lane<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(out, x, n);
}
