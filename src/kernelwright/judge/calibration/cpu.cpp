// SPDX-License-Identifier: Apache-2.0
// Micro-kernels that show what a processor can do at most: streams, dependent loads, multiply-adds.
// Every function returns a value that depends on its work, so that none of it can be optimised away.
#include <cstdint>
#include <cstring>
#if defined(__SSE__)
#include <immintrin.h>
#endif
#include <omp.h>
#include <sys/mman.h>

// As wide as the processor's registers: GCC takes wider vectors apart lane by lane, and with AVX2 alone two Zen 4 cores
// then showed 10 GFLOP/s for 174, and 26 GB/s from the first cache for 300.
#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
constexpr int LANES = BYTES / 4, LINE = 16;
typedef float f32 __attribute__((vector_size(BYTES), aligned(4)));
typedef double f64 __attribute__((vector_size(BYTES), aligned(8)));

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
            for (int64_t i = 0; i < share; i += 8 * LANES) {
                if (ahead) for (int k = 0; k < 8 * LANES; k += LINE) __builtin_prefetch(mine + i + k + ahead, 0, 2);
                a += *(const f32*)(mine + i);
                b += *(const f32*)(mine + i + LANES);
                c += *(const f32*)(mine + i + 2 * LANES);
                d += *(const f32*)(mine + i + 3 * LANES);
                e += *(const f32*)(mine + i + 4 * LANES);
                f += *(const f32*)(mine + i + 5 * LANES);
                g += *(const f32*)(mine + i + 6 * LANES);
                h += *(const f32*)(mine + i + 7 * LANES);
            }
            asm volatile("" ::: "memory");
        }
        f32 sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
        for (int k = 0; k < LANES; k++) total += sum[k];
    }
    return total;
}

static inline void stream(float* to, f32 value) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)value);
#elif defined(__AVX__)
    _mm256_stream_ps(to, (__m256)value);
#elif defined(__SSE__)
    _mm_stream_ps(to, (__m128)value);
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
            for (int64_t i = 0; i < share; i += LANES) stream(mine + i, value);
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
            for (int64_t line = start; line < start + share; line += LINE) {
                if (ahead) __builtin_prefetch(from + line + ahead, 0, 2);
                for (int64_t i = line; i < line + LINE; i += LANES) stream(to + i, *(const f32*)(from + i));
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

// 12 independent chains hide the latency of the multiply-add; 2 operations per lane and step. None begins at 1, which
// is its own successor: the compiler left that chain out.
#define PEAK(NAME, VECTOR, SCALAR)                                                        \
    double NAME(int64_t steps, int threads) {                                             \
        double total = 0;                                                                 \
        _Pragma("omp parallel num_threads(threads) reduction(+ : total)") {               \
            VECTOR x[12], m = VECTOR{} + (SCALAR)0.999, s = VECTOR{} + (SCALAR)0.001;     \
            for (int k = 0; k < 12; k++) x[k] = VECTOR{} + (SCALAR)(k + 2);                    \
            for (int64_t i = 0; i < steps; i++)                                           \
                for (int k = 0; k < 12; k++) x[k] = x[k] * m + s;                         \
            for (int k = 0; k < 12; k++) total += (double)x[k][0];                        \
        }                                                                                 \
        return total;                                                                     \
    }
// Floats in a vector, which both count with.
int lanes() { return LANES; }
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
