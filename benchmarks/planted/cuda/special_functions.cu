// SPDX-License-Identifier: Apache-2.0
// Thirty-two exponentials an element, each on the special-function unit, which is eight times slower than the others.
#include <cstdint>
__global__ void exponentials(float* out, const float* x, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    float4 v = ((const float4*)x)[i], s = {0, 0, 0, 0};
#pragma unroll
    for (int k = 1; k <= 32; k++) {
        s.x += __expf(-k * v.x);
        s.y += __expf(-k * v.y);
        s.z += __expf(-k * v.z);
        s.w += __expf(-k * v.w);
    }
    ((float4*)out)[i] = s;
}
extern "C" void special_functions(float* out, const float* x, int64_t n, void* stream) {
    exponentials<<<(n / 4 + 255) / 256, 256, 0, (cudaStream_t)stream>>>(out, x, n);
}
