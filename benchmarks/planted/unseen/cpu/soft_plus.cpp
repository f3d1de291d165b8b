// SPDX-License-Identifier: Apache-2.0
// log(1 + exp(x)) with the C library's functions, an element at a time.
#include <cmath>
#include <cstdint>
extern "C" void soft_plus(float* out, const float* x, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float v = x[i];
        out[i] = v > 20.0f ? v : std::log1p(std::exp(v));
    }
}
