// SPDX-License-Identifier: Apache-2.0
// The sum of the upper half of 64 strided values, sorted by every thread in registers it does not have.
#include <cstdint>
constexpr int MANY = 64;
__global__ void __launch_bounds__(512, 4) upper_half(float* out, const float* x, int64_t step) {
    int64_t me = blockIdx.x * (int64_t)512 + threadIdx.x;
    float v[MANY];
#pragma unroll
    for (int i = 0; i < MANY; i++) v[i] = x[i * step + me];
#pragma unroll
    for (int width = 2; width <= MANY; width *= 2)
#pragma unroll
        for (int hop = width / 2; hop; hop /= 2)
#pragma unroll
            for (int i = 0; i < MANY; i++) {
                int j = i ^ hop;
                if (j > i) {
                    bool up = (i & width) == 0;
                    float a = fminf(v[i], v[j]), b = fmaxf(v[i], v[j]);
                    v[i] = up ? a : b;
                    v[j] = up ? b : a;
                }
            }
    float sum = 0;
#pragma unroll
    for (int i = MANY / 2; i < MANY; i++) sum += v[i];
    out[me] = sum;
}
extern "C" void sorted_window(float* out, const float* x, int64_t x_d1, void* stream) {
    upper_half<<<x_d1 / 512, 512, 0, (cudaStream_t)stream>>>(out, x, x_d1);
}
