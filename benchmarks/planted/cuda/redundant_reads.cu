// SPDX-License-Identifier: Apache-2.0
// Mean, variance and the result in three passes of separate kernels over a tensor larger than the cache.
#include <cstdint>
__global__ void centre(float* out, const float* x, int64_t n, float k) {
    int64_t step = gridDim.x * (int64_t)blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n / 4; i += step) {
        float4 v = ((const float4*)x)[i];
        v.x += k, v.y += k, v.z += k, v.w += k;
        ((float4*)out)[i] = v;
    }
}
extern "C" void redundant_reads(float* out, const float* x, int64_t n, void* stream) {
    centre<<<4224, 256, 0, (cudaStream_t)stream>>>(out, x, n, 1.0f);
    centre<<<4224, 256, 0, (cudaStream_t)stream>>>(out, out, n, 2.0f);
    centre<<<4224, 256, 0, (cudaStream_t)stream>>>(out, out, n, 3.0f);
}
