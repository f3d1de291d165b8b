// SPDX-License-Identifier: Apache-2.0
// A fresh temporary of the input's size from the system in every call.
#include <cstdint>
#include <sys/mman.h>
extern "C" void page_faults(float* out, const float* x, int64_t n) {
    int64_t block = 1 << 18;
    for (int64_t base = 0; base < n; base += block) {
        float* scratch = (float*)mmap(nullptr, block * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(scratch, block * 4, MADV_NOHUGEPAGE);
        int64_t count = n - base < block ? n - base : block;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < count; i++) scratch[i] = x[base + i] * 2.0f;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < count; i++) out[base + i] = scratch[i] + 1.0f;
        munmap(scratch, block * 4);
    }
}
