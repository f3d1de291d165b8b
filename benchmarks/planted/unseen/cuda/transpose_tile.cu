// SPDX-License-Identifier: Apache-2.0
// The transpose of many 64 x 64 matrices in shared memory, four times over, rows of exactly 64 words.
#include <cstdint>
constexpr int SIDE = 64;
__global__ void flip(const float* in, float* out) {
    extern __shared__ float square[];
    const float* from = in + (int64_t)blockIdx.x * SIDE * SIDE;
    for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) square[i] = from[i];
    __syncthreads();
    float kept[SIDE * SIDE / 256];
    for (int turn = 0; turn < 9; turn++) {
        for (int k = 0; k < SIDE * SIDE / 256; k++) {
            int i = threadIdx.x + 256 * k;
            kept[k] = square[(i % SIDE) * SIDE + i / SIDE];
        }
        __syncthreads();
        for (int k = 0; k < SIDE * SIDE / 256; k++) square[threadIdx.x + 256 * k] = kept[k];
        __syncthreads();
    }
    float* to = out + (int64_t)blockIdx.x * SIDE * SIDE;
    for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) to[i] = square[i];
}
extern "C" void transpose_tile(float* out, const float* x, int64_t x_d0, void* stream) {
    flip<<<x_d0, 256, SIDE * SIDE * sizeof(float), (cudaStream_t)stream>>>(x, out);
}
