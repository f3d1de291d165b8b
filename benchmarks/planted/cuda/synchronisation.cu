// SPDX-License-Identifier: Apache-2.0
// The host waits for the device after every one of eight steps.
#include <cstdint>
__global__ void move(float* out, const float* x, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + 0.125f;
}
extern "C" void synchronisation(float* out, const float* x, int64_t n, void* stream) {
    for (int k = 0; k < 8; k++) {
        move<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(out, k ? out : x, n);
        cudaStreamSynchronize((cudaStream_t)stream);
    }
}
