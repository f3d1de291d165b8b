// SPDX-License-Identifier: Apache-2.0
// Eight blocks sum eight long rows: the other multiprocessors have nothing to do.
#include <cstdint>
__global__ void row_sums(float* out, const float* x, int64_t cols) {
    __shared__ float part[32];
    const float4* row = (const float4*)(x + blockIdx.x * cols);
    float sum = 0;
    for (int64_t i = threadIdx.x; i < cols / 4; i += blockDim.x) {
        float4 v = row[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = part[threadIdx.x];
        for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(~0u, sum, k);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}
extern "C" void tiny_grid(float* out, const float* x, int64_t x_d0, int64_t x_d1, void* stream) {
    row_sums<<<x_d0, 1024, 0, (cudaStream_t)stream>>>(out, x, x_d1);
}
