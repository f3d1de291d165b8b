// SPDX-License-Identifier: Apache-2.0
// Vectors of 128 bits, written by hand.
#include <cstdint>
#include <immintrin.h>
extern "C" void narrow(float* out, const float* x, int64_t n) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n / 8; i++) {
        __m128 v = _mm_loadu_ps(x + 8 * i), w = _mm_loadu_ps(x + 8 * i + 4);
        for (int k = 0; k < 48; k++) {
            v = _mm_add_ps(_mm_mul_ps(v, _mm_set1_ps(0.75f)), _mm_set1_ps(0.1f));
            w = _mm_add_ps(_mm_mul_ps(w, _mm_set1_ps(0.75f)), _mm_set1_ps(0.1f));
        }
        _mm_storeu_ps(out + 8 * i, v);
        _mm_storeu_ps(out + 8 * i + 4, w);
    }
}
