// SPDX-License-Identifier: Apache-2.0
// A chain of divisions and roots.
#include <cmath>
#include <cstdint>
extern "C" void division(float* out, const float* x, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < n / 1024; block++) {
        float v[1024];
        for (int j = 0; j < 1024; j++) v[j] = x[block * 1024 + j] + 1.0f;
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 1024; j++) v[j] = sqrtf(3.0f / v[j]);
        for (int j = 0; j < 1024; j++) out[block * 1024 + j] = v[j];
    }
}
