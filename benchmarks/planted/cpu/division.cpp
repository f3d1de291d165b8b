// SPDX-License-Identifier: Apache-2.0
// A chain of divisions and roots.
#include <cmath>
#include <cstdint>
extern "C" void division(float* out, const float* x, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] + 1.0f;
        for (int k = 0; k < 8; k++) v = sqrtf(3.0f / v);
        out[i] = v;
    }
}
