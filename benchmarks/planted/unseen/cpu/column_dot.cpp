// SPDX-License-Identifier: Apache-2.0
// A matrix times a vector from the left, column by column: each step of the inner loop is a whole row away.
#include <cstdint>
extern "C" void column_dot(float* out, const float* x, const float* v, int64_t x_d0, int64_t x_d1) {
#pragma omp parallel for
    for (int64_t column = 0; column < x_d1; column++) {
        float sum = 0.0f;
        for (int64_t row = 0; row < x_d0; row++) sum += v[row] * x[row * x_d1 + column];
        out[column] = sum;
    }
}
