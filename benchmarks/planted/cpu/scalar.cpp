// SPDX-License-Identifier: Apache-2.0
// A carried branch keeps the compiler from packing the arithmetic.
#include <cstdint>
extern "C" void scalar(float* out, const float* x, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < n / 1024; block++) {
        float carried = 0.0f;
        for (int64_t i = block * 1024; i < block * 1024 + 1024; i++) {
            float v = x[i] * 1.5f + 0.5f;
            for (int k = 0; k < 8; k++) v = v * 0.75f + carried * 0.0f;
            carried = v;
            out[i] = v;
        }
    }
}
