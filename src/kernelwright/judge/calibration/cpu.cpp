// SPDX-License-Identifier: Apache-2.0
// Micro-kernels that show what a processor can do at most: streams, dependent loads, multiply-adds.
// Every function returns a value that depends on its work, so that none of it can be optimised away.
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <omp.h>
#include <sys/mman.h>

typedef float f32 __attribute__((vector_size(64), aligned(4)));
typedef double f64 __attribute__((vector_size(64), aligned(8)));

extern "C" {

// Microseconds are the caller's: maps fresh memory and touches each of its pages once.
double touch_pages(int64_t pages) {
    char* memory = (char*)mmap(nullptr, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return -1;
    madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
    for (int64_t i = 0; i < pages; i++) ((volatile char*)memory)[i * 4096] = 1;
    munmap(memory, pages * 4096);
    return (double)pages;
}

// `ahead` floats ahead of each load the data is asked for, 0: the hardware alone, which stops at every page.
double read_stream(const float* data, int64_t count, int64_t repeats, int threads, int64_t ahead) {
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        int64_t share = count / omp_get_num_threads() / 128 * 128;
        const float* mine = data + share * omp_get_thread_num();
        f32 a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
        for (int64_t r = 0; r < repeats; r++) {
            for (int64_t i = 0; i < share; i += 128) {
                if (ahead) for (int64_t k = 0; k < 128; k += 16) __builtin_prefetch(mine + i + k + ahead, 0, 2);
                a += *(const f32*)(mine + i);
                b += *(const f32*)(mine + i + 16);
                c += *(const f32*)(mine + i + 32);
                d += *(const f32*)(mine + i + 48);
                e += *(const f32*)(mine + i + 64);
                f += *(const f32*)(mine + i + 80);
                g += *(const f32*)(mine + i + 96);
                h += *(const f32*)(mine + i + 112);
            }
            asm volatile("" ::: "memory");
        }
        f32 sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
        for (int k = 0; k < 16; k++) total += sum[k];
    }
    return total;
}

static inline void stream16(float* to, f32 value) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)value);
#elif defined(__AVX__)
    float from[16];
    memcpy(from, &value, sizeof from);
    for (int k = 0; k < 16; k += 8) _mm256_stream_ps(to + k, _mm256_loadu_ps(from + k));
#elif defined(__SSE__)
    float from[16];
    memcpy(from, &value, sizeof from);
    for (int k = 0; k < 16; k += 4) _mm_stream_ps(to + k, _mm_loadu_ps(from + k));
#else
    *(f32*)to = value;
#endif
}

double write_stream(float* data, int64_t count, int64_t repeats, int threads) {
#pragma omp parallel num_threads(threads)
    {
        int64_t share = count / omp_get_num_threads() / 16 * 16;
        float* mine = data + share * omp_get_thread_num();
        for (int64_t r = 0; r < repeats; r++) {
            f32 value = f32{} + (float)r;
            for (int64_t i = 0; i < share; i += 16) stream16(mine + i, value);
            asm volatile("" ::: "memory");
        }
    }
    return data[0];
}

double copy_stream(float* to, const float* from, int64_t count, int64_t repeats, int threads, int64_t ahead) {
#pragma omp parallel num_threads(threads)
    {
        int64_t share = count / omp_get_num_threads() / 16 * 16;
        int64_t start = share * omp_get_thread_num();
        for (int64_t r = 0; r < repeats; r++) {
            for (int64_t i = start; i < start + share; i += 16) {
                if (ahead) __builtin_prefetch(from + i + ahead, 0, 2);
                stream16(to + i, *(const f32*)(from + i));
            }
            asm volatile("" ::: "memory");
        }
    }
    return to[0];
}

// next[i] is a random cycle of 64-byte steps: each load needs the one before it.
int64_t chase(const int64_t* next, int64_t steps) {
    int64_t at = 0;
    for (int64_t i = 0; i < steps; i++) at = next[at];
    return at;
}

// 12 independent chains hide the latency of the multiply-add; 2 operations per lane and step.
#define PEAK(NAME, VECTOR, SCALAR)                                                        \
    double NAME(int64_t steps, int threads) {                                             \
        double total = 0;                                                                 \
        _Pragma("omp parallel num_threads(threads) reduction(+ : total)") {               \
            VECTOR x[12], m = VECTOR{} + (SCALAR)0.999, s = VECTOR{} + (SCALAR)0.001;     \
            for (int k = 0; k < 12; k++) x[k] = VECTOR{} + (SCALAR)k;                     \
            for (int64_t i = 0; i < steps; i++)                                           \
                for (int k = 0; k < 12; k++) x[k] = x[k] * m + s;                         \
            for (int k = 0; k < 12; k++) total += (double)x[k][0];                        \
        }                                                                                 \
        return total;                                                                     \
    }
PEAK(peak_simd_f32, f32, float)
PEAK(peak_simd_f64, f64, double)

double peak_scalar_f32(int64_t steps, int threads) {
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        float x[12];
        for (int k = 0; k < 12; k++) x[k] = (float)k;
        for (int64_t i = 0; i < steps; i++)
            for (int k = 0; k < 12; k++) {
                x[k] = x[k] * 0.999f + 0.001f;
                asm volatile("" : "+x"(x[k]));  // keeps the compiler from packing the chains into vectors
            }
        for (int k = 0; k < 12; k++) total += x[k];
    }
    return total;
}

double fork_join(int64_t repeats, int threads) {
    double total = 0;
    for (int64_t r = 0; r < repeats; r++) {
#pragma omp parallel num_threads(threads)
        {
#pragma omp single nowait
            total += 1;
        }
    }
    return total;
}

double atomics(int64_t repeats, int threads) {
    int64_t counter = 0;
#pragma omp parallel num_threads(threads)
    for (int64_t r = 0; r < repeats; r++) __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    return (double)counter;
}
}
