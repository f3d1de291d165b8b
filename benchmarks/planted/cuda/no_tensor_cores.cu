// SPDX-License-Identifier: Apache-2.0
// A tiled matrix product of bfloat16 on the vector unit.
#include <cstdint>
#include <cuda_bf16.h>
#define T 32
__global__ void product(__nv_bfloat16* out, const __nv_bfloat16* a, const __nv_bfloat16* b, int m, int n, int k) {
    __shared__ float left[T][T + 1], right[T][T + 1];
    int row = blockIdx.y * T + threadIdx.y * 4, col = blockIdx.x * T + threadIdx.x;
    float sum[4] = {0, 0, 0, 0};
    for (int base = 0; base < k; base += T) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            left[threadIdx.y * 4 + r][threadIdx.x] = __bfloat162float(a[(int64_t)(row + r) * k + base + threadIdx.x]);
            right[threadIdx.y * 4 + r][threadIdx.x] =
                __bfloat162float(b[(int64_t)(base + threadIdx.y * 4 + r) * n + col]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < T; i++) {
            float v = right[i][threadIdx.x];
#pragma unroll
            for (int r = 0; r < 4; r++) sum[r] = fmaf(left[threadIdx.y * 4 + r][i], v, sum[r]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; r++) out[(int64_t)(row + r) * n + col] = __float2bfloat16(sum[r]);
}
extern "C" void no_tensor_cores(__nv_bfloat16* out, const __nv_bfloat16* a, const __nv_bfloat16* b, int64_t a_d0,
                                int64_t b_d1, int64_t a_d1, void* stream) {
    product<<<dim3(b_d1 / T, a_d0 / T), dim3(T, T / 4), 0, (cudaStream_t)stream>>>(out, a, b, a_d0, b_d1, a_d1);
}
