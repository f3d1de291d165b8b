# SPDX-License-Identifier: Apache-2.0
"""The vectors of the CPU kernels for float64: the names of ``cpp_math``, half as many lanes, each within about one ulp.

exp by Cody and Waite's reduction and its Taylor series; log and tanh as in Sun's fdlibm (k * ln2 in two parts, log(1+f)
from s = f / (2 + f)). Everything else is arithmetic. ``tests/proposers/test_templates_doubles.py`` measures each.
"""

from __future__ import annotations

DOUBLES = r"""
static constexpr int W = KW_WIDTH / 2;
typedef double E;
typedef double V __attribute__((vector_size(8 * W)));
typedef double VU __attribute__((vector_size(8 * W), aligned(8), may_alias));
typedef double D __attribute__((vector_size(8 * W)));
typedef int64_t I __attribute__((vector_size(8 * W)));
typedef int64_t L __attribute__((vector_size(8 * W)));
typedef int8_t B __attribute__((vector_size(W)));
typedef float F __attribute__((vector_size(4 * W)));

KW_IN V kw_splat(double x) { return V{} + x; }
KW_IN I kw_int(V x) { I r; memcpy(&r, &x, sizeof r); return r; }
KW_IN V kw_float(I x) { V r; memcpy(&r, &x, sizeof r); return r; }
template <bool T> KW_IN V kw_load(const double* p, int n) {
    if (!T) return *(const VU*)p;
    V v{}; for (int i = 0; i < n; ++i) v[i] = p[i]; return v;
}
template <bool T> KW_IN V kw_load(const float* p, int n) {
    F v{}; if (!T) memcpy(&v, p, sizeof v); else for (int i = 0; i < n; ++i) v[i] = p[i];
    return __builtin_convertvector(v, V);
}
template <bool T> KW_IN void kw_store(double* p, V v, int n) {
    if (!T) *(VU*)p = v; else for (int i = 0; i < n; ++i) p[i] = v[i];
}
template <bool T> KW_IN void kw_store(float* p, V v, int n) {
    const F f = __builtin_convertvector(v, F);
    if (!T) memcpy(p, &f, sizeof f); else for (int i = 0; i < n; ++i) p[i] = f[i];
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
KW_IN void kw_stream(double* p, V v) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    __builtin_ia32_movntpd512(p, v);
#elif defined(__AVX__) && KW_WIDTH == 8
    __builtin_ia32_movntpd256(p, v);
#else
    *(VU*)p = v;
#endif
}
KW_IN void kw_stream(float* p, V v) { kw_store<false>(p, v, W); }
struct KwScratch { double* p = nullptr; int64_t n = 0; ~KwScratch() { free(p); } };
static thread_local KwScratch kw_scratch_;
static double* kw_scratch(int64_t n) {
    KwScratch& s = kw_scratch_;
    if (s.n < n) { free(s.p); s.p = nullptr; s.n = 0;
        if (posix_memalign((void**)&s.p, 64, (size_t)n * 8)) { s.p = nullptr; abort(); } s.n = n; }
    return s.p;
}

KW_IN I kw_lanes() { I r; for (int i = 0; i < W; ++i) r[i] = i; return r; }
KW_IN V kw_select(I m, V a, V b) { return m ? a : b; }
// A NaN in either argument is the result.
KW_IN V kw_max(V a, V b) { return ((a > b) | (a != a)) ? a : b; }
KW_IN V kw_min(V a, V b) { return ((a < b) | (a != a)) ? a : b; }
KW_IN double kw_hsum(V v) {
    double d[W]; memcpy(d, &v, sizeof d);
    for (int s = W / 2; s > 0; s /= 2) for (int i = 0; i < s; ++i) d[i] += d[i + s];
    return d[0];
}
KW_IN double kw_hmax(V v) {
    double r = v[0]; for (int i = 1; i < W; ++i) r = (v[i] > r || v[i] != v[i]) ? v[i] : r; return r;
}
KW_IN double kw_hmin(V v) {
    double r = v[0]; for (int i = 1; i < W; ++i) r = (v[i] < r || v[i] != v[i]) ? v[i] : r; return r;
}

KW_IN V kw_abs(V x) { return kw_float(kw_int(x) & INT64_MAX); }
KW_IN V kw_copysign(V x, V s) { return kw_float((kw_int(x) & INT64_MAX) | (kw_int(s) & INT64_MIN)); }
KW_IN V kw_relu(V x) { return (x < 0.0) ? V{} : x; }
KW_IN V kw_sqrt(V x) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4);
#elif defined(__AVX__) && KW_WIDTH == 8
    return __builtin_ia32_sqrtpd256(x);
#else
    V r; for (int i = 0; i < W; ++i) r[i] = __builtin_sqrt(x[i]); return r;
#endif
}
KW_IN V kw_floor(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_floor(x[i]); return r; }
KW_IN V kw_ceil(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_ceil(x[i]); return r; }
KW_IN V kw_trunc(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_trunc(x[i]); return r; }
KW_IN V kw_round(V x) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_rint(x[i]); return r; }
KW_IN V kw_reciprocal(V x) { return 1.0 / x; }
KW_IN V kw_rsqrt(V x) { return 1.0 / kw_sqrt(x); }
KW_IN V kw_as_f32(V x) { return __builtin_convertvector(__builtin_convertvector(x, F), V); }

// 2^n for integral n in [-2044, 2046] as a product of two numbers.
KW_IN V kw_scale(V x, I n) {
    const I h = n >> 1;
    return x * kw_float((h + 1023) << 52) * kw_float((n - h + 1023) << 52);
}
// exp(x) = 2^n (1 + p), |r| <= ln2 / 2: the series to r^13, whose rest is below 2^-57.
KW_IN V kw_exp_parts(V x, I* n) {
    const V magic = kw_splat(6755399441055744.0);
    const V t = x * 1.4426950408889634074 + magic;
    *n = kw_int(t) - kw_int(magic);
    const V k = t - magic;
    V r = x - k * 6.93147180369123816490e-01;
    r = r - k * 1.90821492927058770002e-10;
    V p = kw_splat(1.0 / 6227020800.0);
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    return p * (r * r) + r;
}
KW_IN V kw_clipped(V x, double lo, double hi) {
    return (x > hi) ? kw_splat(hi) : ((x < lo) ? kw_splat(lo) : x);
}
KW_IN V kw_exp(V x) {
    I n;
    const V p = kw_exp_parts(kw_clipped(x, -746.0, 710.0), &n);
    return kw_scale(p + 1.0, n);
}
KW_IN V kw_expm1(V x) {
    I n;
    const V p = kw_exp_parts(kw_clipped(x, -40.0, 700.0), &n);
    const V s = kw_float((n + 1023) << 52);
    return (x > 700.0) ? kw_exp(x) : ((x == 0.0) ? x : s * p + (s - 1.0));
}
// log(1 + f) and k, where x = 2^k (1 + f) and 1 + f lies between the roots of 1/2 and 2; `low` is added last.
KW_IN V kw_log_of(V f, V k, V low) {
    const V s = f / (2.0 + f), z = s * s, w = z * z, half = 0.5 * f * f;
    const V even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const V odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01
        + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    const V rest = s * (half + (even + odd)) + (k * 1.90821492927058770002e-10 + low);
    return k * 6.93147180369123816490e-01 - ((half - rest) - f);
}
KW_IN V kw_log_split(V x0, V low) {
    const I tiny = x0 < 2.2250738585072014e-308;
    const V x = tiny ? x0 * 18014398509481984.0 : x0;
    const I root = I{} + 0x3fe6a09e667f3bcdLL;
    const I bits = kw_int(x) - root, e = bits >> 52;
    const V f = kw_float((bits & 0x000fffffffffffffLL) + root) - 1.0;
    const V k = __builtin_convertvector(e, V) - (tiny ? kw_splat(54.0) : V{});
    V r = kw_log_of(f, k, low);
    r = (x0 == 0.0) ? kw_splat(-__builtin_inf()) : r;
    r = (x0 == __builtin_inf()) ? x0 : r;
    return ((x0 < 0.0) | (x0 != x0)) ? kw_splat(__builtin_nan("")) : r;
}
KW_IN V kw_log(V x) { return kw_log_split(x, V{}); }
// What 1 + x rounded away comes back as a first-order term.
KW_IN V kw_log1p(V x) {
    const V u = 1.0 + x;
    const V fix = (x - (u - 1.0)) / u;
    const V r = kw_log_split(u, ((u - u == 0.0) & (u != 0.0)) ? fix : V{});
    return (kw_abs(x) < 1e-16) ? x : r;
}
KW_IN V kw_sigmoid(V x) { return 1.0 / (1.0 + kw_exp(-x)); }
KW_IN V kw_tanh(V x) {
    const V a = kw_abs(x);
    const I near = a < 1.0;
    const V t = kw_expm1(near ? -2.0 * a : 2.0 * a);
    const V r = near ? -t / (t + 2.0) : 1.0 - 2.0 / (t + 2.0);
    return (x == 0.0) ? x : kw_copysign(r, x);
}
"""
