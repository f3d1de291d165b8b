// SPDX-License-Identifier: Apache-2.0
// Good vector code on one core.
#include <cstdint>
extern "C" void one_thread(float* out, const float* x, int64_t n) {
    for (int64_t block = 0; block < n / 1024; block++) {
        float v[1024];
        for (int j = 0; j < 1024; j++) v[j] = x[block * 1024 + j];
        for (int k = 0; k < 32; k++)
            for (int j = 0; j < 1024; j++) v[j] = v[j] * 0.75f + 0.1f;
        for (int j = 0; j < 1024; j++) out[block * 1024 + j] = v[j];
    }
}
