// SPDX-License-Identifier: Apache-2.0
// A Gram matrix's lower half, equal numbers of rows for each thread: the later rows are the longer ones.
#include <cstdint>
extern "C" void triangle_rows(float* out, const float* x, int64_t x_d0, int64_t x_d1) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < x_d0; i++) {
        for (int64_t j = 0; j < x_d0; j++) out[i * x_d0 + j] = 0.0f;
        for (int64_t j = 0; j <= i; j++) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < x_d1; k++) sum += x[i * x_d1 + k] * x[j * x_d1 + k];
            out[i * x_d0 + j] = sum;
        }
    }
}
