// SPDX-License-Identifier: Apache-2.0
// Every row of the result reads the whole table again, which stays in the last-level cache and is too large for any other.
#include <cstdint>
__global__ void columns(float* out, const float* x, int64_t rows, int64_t width) {
    const float4* table = (const float4*)x;
    for (int64_t at = threadIdx.x; at < width / 4; at += blockDim.x) {
        float4 s = {0, 0, 0, 0};
#pragma unroll 16
        for (int64_t r = 0; r < rows; r++) {
            float4 v = __ldcg(table + r * (width / 4) + at);
            s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
        }
        float b = blockIdx.x;
        s.x += b, s.y += b, s.z += b, s.w += b;
        ((float4*)out)[blockIdx.x * (width / 4) + at] = s;
    }
}
extern "C" void cache_traffic(float* out, const float* x, int64_t n, int64_t x_d0, int64_t x_d1, void* stream) {
    columns<<<n / x_d1, 256, 0, (cudaStream_t)stream>>>(out, x, x_d0, x_d1);
}
