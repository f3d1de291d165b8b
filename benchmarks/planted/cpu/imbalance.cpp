// SPDX-License-Identifier: Apache-2.0
// Static halves, of which one has twice the work.
#include <cstdint>
extern "C" void imbalance(float* out, const float* x, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < n / 1024; block++) {
        int trips = block < n / 2048 ? 64 : 24;
        float v[1024];
        for (int j = 0; j < 1024; j++) v[j] = x[block * 1024 + j];
        for (int k = 0; k < trips; k++)
            for (int j = 0; j < 1024; j++) v[j] = v[j] * 0.75f + 0.1f;
        for (int j = 0; j < 1024; j++) out[block * 1024 + j] = v[j];
    }
}
