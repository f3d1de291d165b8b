// SPDX-License-Identifier: Apache-2.0
// A triangular matrix times a vector, a contiguous share of rows for each block: the last share is the longest.
#include <cstdint>
__global__ void rows_of(float* y, const float* m, const float* v, int64_t side) {
    int64_t share = (side + gridDim.x - 1) / gridDim.x;
    int64_t end = min(side, (blockIdx.x + 1) * share);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int64_t row = blockIdx.x * share + warp; row < end; row += blockDim.x / 32) {
        float sum = 0;
        for (int64_t col = lane; col <= row; col += 32) sum += m[row * side + col] * v[col];
        for (int off = 16; off; off /= 2) sum += __shfl_down_sync(~0u, sum, off);
        if (lane == 0) y[row] = sum;
    }
}
extern "C" void lower_triangle(float* out, const float* m, const float* v, int64_t m_d0, void* stream) {
    rows_of<<<264, 512, 0, (cudaStream_t)stream>>>(out, m, v, m_d0);
}
