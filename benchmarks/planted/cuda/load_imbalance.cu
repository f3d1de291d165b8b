// SPDX-License-Identifier: Apache-2.0
// Block b works b steps: the last blocks run long after the others have finished.
#include <cstdint>
__global__ void triangle(float* out, const float* x, int64_t rows, int64_t cols) {
    int64_t row = blockIdx.x;
    int64_t trips = row % 132 == 131 ? 64 : 2;
    float sum = 0;
    for (int64_t t = 0; t < trips; t++)
        for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) sum += x[row * cols + i] * (float)(t + 1);
    out[row * blockDim.x + threadIdx.x] = sum;
}
extern "C" void load_imbalance(float* out, const float* x, int64_t x_d0, int64_t x_d1, void* stream) {
    triangle<<<x_d0, 256, 0, (cudaStream_t)stream>>>(out, x, x_d0, x_d1);
}
