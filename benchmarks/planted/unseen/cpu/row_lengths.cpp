// SPDX-License-Identifier: Apache-2.0
// The sum of squares of each row in strict order: every addition waits for the one before.
#include <cstdint>
extern "C" void row_lengths(float* out, const float* x, int64_t x_d0, int64_t x_d1) {
#pragma omp parallel for
    for (int64_t r = 0; r < x_d0; r++) {
        float total = 0.0f;
        for (int64_t c = 0; c < x_d1; c++) {
            float v = x[r * x_d1 + c];
            total += v * v;
        }
        out[r] = total;
    }
}
