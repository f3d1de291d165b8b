// SPDX-License-Identifier: Apache-2.0
// 200 KiB of shared memory for a block of 64 threads: two warps a multiprocessor, each waiting for its loads.
#include <cstdint>
__global__ void big_scratch(float* out, const float* x, int64_t n) {
    extern __shared__ float scratch[];
    int64_t step = gridDim.x * (int64_t)blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        scratch[threadIdx.x * 32] = x[i];
        __syncwarp();
        out[i] = 2.0f * scratch[threadIdx.x * 32];
    }
}
extern "C" void occupancy_shared(float* out, const float* x, int64_t n, void* stream) {
    int bytes = 200 << 10;
    cudaFuncSetAttribute(big_scratch, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    big_scratch<<<4096, 64, bytes, (cudaStream_t)stream>>>(out, x, n);
}
