// SPDX-License-Identifier: Apache-2.0
// One byte a thread: four times the instructions of a 4-byte load, sixteen times those of a 16-byte one.
#include <cstdint>
__global__ void add_one(uint8_t* out, const uint8_t* x, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] ^ 1;
}
extern "C" void narrow_loads(uint8_t* out, const uint8_t* x, int64_t n, void* stream) {
    add_one<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(out, x, n);
}
