// SPDX-License-Identifier: Apache-2.0
// Rows of 36 in tiles of 128: most lanes of each tile are masked off.
#include <cstdint>
__global__ void masked_rows(float* out, const float* x, int64_t rows, int cols) {
    int64_t row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int col = threadIdx.x + 32 * k;
        v[k] = 0;
        if (col < cols) v[k] = x[row * cols + col];
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int col = threadIdx.x + 32 * k;
        if (col < cols) {
            float t = v[k];
            t = t * t + 1.0f;
            out[row * cols + col] = t;
        }
    }
}
extern "C" void partial_tiles(float* out, const float* x, int64_t x_d0, int64_t x_d1, void* stream) {
    masked_rows<<<(x_d0 + 7) / 8, dim3(32, 8), 0, (cudaStream_t)stream>>>(out, x, x_d0, x_d1);
}
