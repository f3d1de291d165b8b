// SPDX-License-Identifier: Apache-2.0
// A 32 x 32 tile without padding: reading its columns hits one bank 32 times, again and again.
#include <cstdint>
__global__ void column_sums(float* out, const float* x, int64_t n) {
    __shared__ float tile[32][32];
    int64_t base = blockIdx.x * (int64_t)1024;
    tile[threadIdx.y][threadIdx.x] = x[base + threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < 64; k++) sum += tile[threadIdx.x][(threadIdx.y + k) & 31];
    out[base + threadIdx.y * 32 + threadIdx.x] = sum;
}
extern "C" void bank_conflicts(float* out, const float* x, int64_t n, void* stream) {
    column_sums<<<n / 1024, dim3(32, 32), 0, (cudaStream_t)stream>>>(out, x, n);
}
