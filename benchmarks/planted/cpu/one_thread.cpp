// SPDX-License-Identifier: Apache-2.0
// Good vector code on one core.
#include <cstdint>
extern "C" void one_thread(float* out, const float* x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float v = x[i];
        for (int k = 0; k < 32; k++) v = v * 0.75f + 0.1f;
        out[i] = v;
    }
}
