# SPDX-License-Identifier: Apache-2.0
"""The C++ that every CPU kernel starts with: one vector type and its functions, each within about one ulp.

GCC vector extensions, no intrinsics header (parsing it alone costs 0.45 s). NaN and infinities behave as in
torch. The reductions of exp, log, erf and tanh arguments are the usual ones (Cody and Waite; Cephes; N. Juffa);
``tests/proposers/test_templates_math.py`` measures each against float64.
"""

from __future__ import annotations

NATIVE = """\
#if defined(__AVX512F__)
#define KW_WIDTH 16
#elif defined(__AVX__)
#define KW_WIDTH 8
#else
#define KW_WIDTH 4
#endif
"""

HEAD = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <sys/mman.h>
#pragma GCC optimize("no-math-errno,no-trapping-math")
#pragma GCC diagnostic ignored "-Wpsabi"

#define KW_IN static inline __attribute__((always_inline))
KW_IN void kw_fence() {
#if defined(__SSE__)
    __builtin_ia32_sfence();
#endif
}
#ifdef _OPENMP
extern "C" int omp_get_max_threads(void);
KW_IN int64_t kw_threads() { return omp_get_max_threads(); }
#else
KW_IN int64_t kw_threads() { return 1; }
#endif
// A row of a table of n: a negative number counts from the end, others outside read the first or the last.
KW_IN int64_t kw_row(int64_t i, int64_t n) { i = i < 0 ? i + n : i; return i < 0 ? 0 : i < n ? i : n - 1; }
// Ask for huge pages under a large fresh output: fewer faults on its first touch. Advice only.
static void kw_huge(void* p, int64_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t two = 1 << 21, lo = ((uintptr_t)p + two - 1) & ~(two - 1), hi = ((uintptr_t)p + bytes) & ~(two - 1);
    if (bytes >= (4 << 20) && hi > lo) madvise((void*)lo, hi - lo, MADV_HUGEPAGE);
#endif
}
// Fault in the pages that begin in [p, p + bytes) with one call, where the first of them is not there yet.
static void kw_populate(void* p, int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    const uintptr_t page = 4096, lo = ((uintptr_t)p + page - 1) & ~(page - 1), hi = (uintptr_t)p + bytes;
    unsigned char there = 0;
    if (hi > lo + page && mincore((void*)lo, 1, &there) == 0 && !(there & 1)) {
        madvise((void*)lo, (hi - lo) & ~(page - 1), MADV_POPULATE_WRITE);
    }
#endif
}
"""
"""What does not depend on the type: once a file."""

FLOATS = r"""
static constexpr int W = KW_WIDTH;
typedef float E;
typedef float V __attribute__((vector_size(4 * W)));
typedef float E;
typedef float VU __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t I __attribute__((vector_size(4 * W)));
typedef int8_t B __attribute__((vector_size(W)));
typedef int64_t L __attribute__((vector_size(8 * W)));
typedef double D __attribute__((vector_size(8 * W)));

KW_IN V kw_splat(float x) { return V{} + x; }
KW_IN I kw_int(V x) { I r; memcpy(&r, &x, sizeof r); return r; }
KW_IN V kw_float(I x) { V r; memcpy(&r, &x, sizeof r); return r; }

// `tail` loads and stores touch n < W elements only; the other lanes read 0.
template <bool T> KW_IN V kw_load(const float* p, int n) {
    if (!T) return *(const VU*)p;
#if defined(__AVX512F__) && KW_WIDTH == 16
    return __builtin_ia32_loadups512_mask(p, V{}, (uint16_t)((1u << n) - 1));
#else
    V v{}; for (int i = 0; i < n; ++i) v[i] = p[i]; return v;
#endif
}
template <bool T> KW_IN void kw_store(float* p, V v, int n) {
    if (!T) { *(VU*)p = v; return; }
#if defined(__AVX512F__) && KW_WIDTH == 16
    __builtin_ia32_storeups512_mask(p, v, (uint16_t)((1u << n) - 1));
#else
    for (int i = 0; i < n; ++i) p[i] = v[i];
#endif
}
template <bool T> KW_IN I kw_loadb(const uint8_t* p, int n) {
    B b{}; if (!T) memcpy(&b, p, W); else for (int i = 0; i < n; ++i) b[i] = p[i];
    return __builtin_convertvector(b, I) != 0;
}
template <bool T> KW_IN void kw_storeb(uint8_t* p, I v, int n) {
    B b = __builtin_convertvector(v & 1, B);
    if (!T) memcpy(p, &b, W); else for (int i = 0; i < n; ++i) p[i] = b[i];
}
template <bool T> KW_IN V kw_loadl(const int64_t* p, int n) {
    L l{}; if (!T) memcpy(&l, p, sizeof l); else for (int i = 0; i < n; ++i) l[i] = p[i];
    return __builtin_convertvector(l, V);
}
// A store past the cache; the caller has checked that p is aligned to the vector.
KW_IN void kw_stream(float* p, V v) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    __builtin_ia32_movntps512(p, v);
#elif defined(__AVX__) && KW_WIDTH == 8
    __builtin_ia32_movntps256(p, v);
#else
    *(VU*)p = v;
#endif
}
// Memory that lives with the thread: rows kept between passes.
struct KwScratch { float* p = nullptr; int64_t n = 0; ~KwScratch() { free(p); } };
static thread_local KwScratch kw_scratch_;
static float* kw_scratch(int64_t n) {
    KwScratch& s = kw_scratch_;
    if (s.n < n) { free(s.p); s.p = nullptr; s.n = 0;
        if (posix_memalign((void**)&s.p, 64, (size_t)n * 4)) { s.p = nullptr; abort(); } s.n = n; }
    return s.p;
}

KW_IN I kw_lanes() { I r; for (int i = 0; i < W; ++i) r[i] = i; return r; }
KW_IN V kw_select(I m, V a, V b) { return m ? a : b; }
// A NaN in either argument is the result.
KW_IN V kw_max(V a, V b) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    return __builtin_ia32_maxps512_mask(a, b, a, __builtin_ia32_cmpps512_mask(a, a, 7, -1, 4), 4);
#else
    return ((a > b) | (a != a)) ? a : b;
#endif
}
KW_IN V kw_min(V a, V b) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    return __builtin_ia32_minps512_mask(a, b, a, __builtin_ia32_cmpps512_mask(a, a, 7, -1, 4), 4);
#else
    return ((a < b) | (a != a)) ? a : b;
#endif
}
// lo <= x <= hi; a NaN stays.
KW_IN V kw_within(float lo, V x, float hi) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    const V l = kw_splat(lo), h = kw_splat(hi);
    return __builtin_ia32_minps512_mask(h, __builtin_ia32_maxps512_mask(l, x, x, -1, 4), x, -1, 4);
#elif defined(__AVX__) && KW_WIDTH == 8
    return __builtin_ia32_minps256(kw_splat(hi), __builtin_ia32_maxps256(kw_splat(lo), x));
#else
    return (x > hi) ? kw_splat(hi) : ((x < lo) ? kw_splat(lo) : x);
#endif
}
// Across the lanes, as a tree.
KW_IN double kw_hsum(V v) {
    double d[W]; for (int i = 0; i < W; ++i) d[i] = v[i];
    for (int s = W / 2; s > 0; s /= 2) for (int i = 0; i < s; ++i) d[i] += d[i + s];
    return d[0];
}
KW_IN float kw_hmax(V v) {
    float d[W]; memcpy(d, &v, sizeof d);
    for (int s = W / 2; s > 0; s /= 2)
        for (int i = 0; i < s; ++i) d[i] = (d[i + s] > d[i] || d[i + s] != d[i + s]) ? d[i + s] : d[i];
    return d[0];
}
KW_IN float kw_hmin(V v) {
    float d[W]; memcpy(d, &v, sizeof d);
    for (int s = W / 2; s > 0; s /= 2)
        for (int i = 0; i < s; ++i) d[i] = (d[i + s] < d[i] || d[i + s] != d[i + s]) ? d[i + s] : d[i];
    return d[0];
}

KW_IN V kw_abs(V x) { return kw_float(kw_int(x) & 0x7fffffff); }
KW_IN V kw_copysign(V x, V s) { return kw_float((kw_int(x) & 0x7fffffff) | (kw_int(s) & (int32_t)0x80000000)); }
KW_IN V kw_relu(V x) { return (x < 0.0f) ? V{} : x; }
KW_IN V kw_sqrt(V x) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#elif defined(__AVX__) && KW_WIDTH == 8
    return __builtin_ia32_sqrtps256(x);
#else
    V r; for (int i = 0; i < W; ++i) r[i] = __builtin_sqrtf(x[i]); return r;
#endif
}
KW_IN V kw_floor(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_floorf(x[i]); return r; }
KW_IN V kw_ceil(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_ceilf(x[i]); return r; }
KW_IN V kw_trunc(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_truncf(x[i]); return r; }
KW_IN V kw_round(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_rintf(x[i]); return r; }
static V kw_sin(V x) { V r; for (int i = 0; i < W; ++i) r[i] = sinf(x[i]); return r; }
static V kw_cos(V x) { V r; for (int i = 0; i < W; ++i) r[i] = cosf(x[i]); return r; }
static V kw_pow(V x, V y) { V r; for (int i = 0; i < W; ++i) r[i] = powf(x[i], y[i]); return r; }
KW_IN V kw_reciprocal(V x) { return 1.0f / x; }
KW_IN V kw_rsqrt(V x) { return 1.0f / kw_sqrt(x); }

// 2^n for integral n in [-252, 254] as a product of two normal numbers.
KW_IN V kw_scale(V x, I n) {
    const I h = n >> 1;
    return x * kw_float((h + 127) << 23) * kw_float((n - h + 127) << 23);
}
// exp(x) = 2^n (1 + p), |r| <= ln2 / 2.
KW_IN V kw_exp_parts(V x, I* n, V* whole) {
    const V magic = kw_splat(12582912.0f);
    const V t = x * 1.44269504088896341f + magic;
    *n = kw_int(t) - kw_int(magic);
    const V k = t - magic;
    *whole = k;
    V r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    V p = kw_splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}
KW_IN V kw_exp(V x) {
    I n; V k;
    const V p = kw_exp_parts(kw_within(-104.0f, x, 89.0f), &n, &k) + 1.0f;
#if defined(__AVX512F__) && KW_WIDTH == 16
    return __builtin_ia32_scalefps512_mask(p, k, p, -1, 4);
#else
    return kw_scale(p, n);
#endif
}
KW_IN V kw_expm1(V x) {
    I n; V k;
    const V p = kw_exp_parts(kw_within(-20.0f, x, 80.0f), &n, &k);
    const V s = kw_float((n + 127) << 23);
    const V small = s * p + (s - 1.0f);
    return (x > 80.0f) ? kw_exp(x) : ((x == 0.0f) ? x : small);
}
// x0 = 2^k (1 + f); returns the part of log(1 + f) beyond f - f^2 / 2.
KW_IN V kw_log_parts(V x0, V* k, V* f0) {
    const I tiny = x0 < 1.17549435e-38f;
    const V x = tiny ? x0 * 8388608.0f : x0;
    const I bits = kw_int(x) - 0x3f3504f3;
    const I e = bits >> 23;
    const V f = kw_float((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    *k = __builtin_convertvector(e, V) - (tiny ? kw_splat(23.0f) : V{});
    *f0 = f;
    V p = kw_splat(7.0376836292e-2f);
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return p * f * (f * f);
}
KW_IN V kw_log_ends(V x, V r) {
    r = (x == 0.0f) ? kw_splat(-__builtin_inff()) : r;
    r = (x == __builtin_inff()) ? x : r;
    return ((x < 0.0f) | (x != x)) ? kw_splat(__builtin_nanf("")) : r;
}
KW_IN V kw_log(V x) {
    V k, f;
    V y = kw_log_parts(x, &k, &f);
    y = y + k * -2.12194440e-4f;
    y = y - 0.5f * (f * f);
    return kw_log_ends(x, (f + y) + k * 0.693359375f);
}
// log2(e) less 1 times the fraction, and the fraction; the exponent comes last, so that powers of two are exact.
KW_IN V kw_log2(V x) {
    V k, f;
    const V y = kw_log_parts(x, &k, &f) - 0.5f * (f * f);
    V r = y * 0.442695041f;
    r = r + f * 0.442695041f;
    r = r + y;
    r = r + f;
    return kw_log_ends(x, r + k);
}
// The rounding of 1 + x is given back as a first-order term.
KW_IN V kw_log1p(V x) {
    const V u = 1.0f + x;
    const V fix = (x - (u - 1.0f)) / u;
    const V r = kw_log(u) + ((u - u == 0.0f) & (u != 0.0f) ? fix : V{});
    return (kw_abs(x) < 1e-7f) ? x : r;
}
KW_IN V kw_sigmoid(V x) { return 1.0f / (1.0f + kw_exp(-x)); }
KW_IN V kw_tanh(V x) {
    const V a = kw_abs(x), s = x * x;
    V p = kw_splat(2.2989497520e-3f);
    p = p * s - 8.3500165492e-3f;
    p = p * s + 2.1770998836e-2f;
    p = p * s - 5.3959552199e-2f;
    p = p * s + 1.3333305716e-1f;
    p = p * s - 3.3333334327e-1f;
    const V small = x + x * (s * p);
    const V large = 1.0f - 2.0f / (kw_exp(2.0f * a) + 1.0f);
    return (a < 0.625f) ? small : kw_copysign(large, x);
}
#if (defined(__AVX2__) && KW_WIDTH == 8) || (defined(__AVX512F__) && KW_WIDTH == 16)
// Eight stretches of [0, 4), half each: where the argument counts from, and a minimax polynomial of degree 7 in that
// (from c0; of the first its part beyond the argument itself). Permutations look them up: 1.5 to 1.9 times as fast as
// two branches and exp. The last row is there to be read by vectors of 16.
static const float kw_erf_[10][8] = {
    {0.0f, 0.75f, 1.25f, 1.75f,
     2.25f, 2.75f, 3.25f, 3.75f},
    {0.0f, 0.711155653f, 0.92290014f, 0.986671686f,
     0.998537302f, 0.999899387f, 0.999995708f, 0.999999881f},
    {0.128379181f, 0.642931044f, 0.236521125f, 0.0527749956f,
     0.00714231888f, 0.000586277223f, 2.91890246e-05f, 8.81432186e-07f},
    {-2.47210824e-06f, -0.482203752f, -0.295655102f, -0.0923605114f,
     -0.016075518f, -0.00161493337f, -9.809943e-05f, -1.73063881e-06f},
    {-0.376054794f, 0.0267911199f, 0.167535588f, 0.0901573598f,
     0.0217245519f, 0.00276038772f, 0.000195810964f, 7.96990298e-06f},
    {-0.000771648949f, 0.150912777f, -0.00598703371f, -0.0479221679f,
     -0.0188603438f, -0.00314414292f, -0.000148575986f, -8.08735131e-05f},
    {0.116725653f, -0.053291928f, -0.0471781678f, 0.00661933748f,
     0.0106589403f, 0.00275608245f, 0.000313676661f, 1.8342218e-05f},
    {-0.00959409308f, -0.0291015767f, 0.019041067f, 0.00709771551f,
     -0.00520361634f, -0.0028776289f, -0.00173943304f, 0.000693812093f},
    {-0.0168678816f, 0.0184873901f, 0.00367631088f, -0.00594045734f,
     -0.000712302281f, 0.000637514342f, 0.000173204535f, 1.70451549e-05f},
    {}};
KW_IN V kw_pick(int k, I at) {
#if KW_WIDTH == 16
    const V row = *(const VU*)kw_erf_[k];
    return __builtin_ia32_permvarsf512_mask(row, at, row, -1);
#else
    return __builtin_ia32_permvarsf256(*(const VU*)kw_erf_[k], at);
#endif
}
KW_IN V kw_erf(V x) {
    const V a = kw_abs(x), t = (a < 3.9999998f) ? a : kw_splat(3.9999998f);
    const I at = __builtin_convertvector(t + t, I);
    const V u = t - kw_pick(0, at);
    V p = kw_pick(8, at);
    _Pragma("GCC unroll 6") for (int k = 7; k > 1; --k) p = p * u + kw_pick(k, at);
    p = p * u + ((t < 0.5f) ? t : kw_pick(1, at));
    return (x != x) ? x : kw_copysign(p, x);
}
#else
KW_IN V kw_erf(V x) {
    const V t = kw_abs(x), s = x * x;
    V r = kw_splat(-1.72853470e-5f) * t + 3.83197126e-4f;
    const V u = kw_splat(-3.88396438e-3f) * t + 2.42546219e-2f;
    r = r * s + u;
    r = r * t - 1.06777877e-1f;
    r = r * t - 6.34846687e-1f;
    r = r * t - 1.28717512e-1f;
    r = r * t - t;
    const V large = 1.0f - kw_exp((t > 10.0f) ? kw_splat(-100.0f) : r);
    V q = kw_splat(-5.96761703e-4f);
    q = q * s + 4.99119423e-3f;
    q = q * s - 2.67681349e-2f;
    q = q * s + 1.12819925e-1f;
    q = q * s - 3.76125336e-1f;
    q = q * s + 1.28379166e-1f;
    const V small = q * x + x;
    return (x != x) ? x : ((t > 0.927734375f) ? kw_copysign(large, x) : small);
}
#endif
"""


def head(width: int) -> str:
    """What comes first in a file, whatever its vectors hold."""
    return (f"#define KW_WIDTH {width}\n" if width else NATIVE) + HEAD.lstrip()


def prelude(width: int) -> str:
    """The prelude for vectors of ``width`` floats (4, 8 or 16); 0 is the widest of the machine that compiles it."""
    return head(width) + FLOATS
