// SPDX-License-Identifier: Apache-2.0
// Three steps, each into a vector made for it and thrown away.
#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>
static float* fresh(int64_t n) {
    return (float*)mmap(nullptr, n * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
extern "C" void fresh_vectors(float* out, const float* x, int64_t n) {
    float *one = fresh(n), *two = fresh(n);
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) one[i] = x[i] * 0.5f;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) two[i] = one[i] + 3.0f;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) out[i] = two[i] > 3.25f ? two[i] : 3.25f;
    munmap(one, n * sizeof(float));
    munmap(two, n * sizeof(float));
}
