# SPDX-License-Identifier: Apache-2.0
"""A window as one C++ function: rows of the result in parallel, vectors along the width.

Maxima and means are separable: a box of k x k takes k operations down and k across, not k * k.
"""

from __future__ import annotations

from kernelwright.proposers.templates.ir import Call, Tensor, Window
from kernelwright.proposers.templates.sizes import product

PRELUDE = r"""
// W elements, S apart, from p on; nothing beyond the last of them is read.
template <int S> KW_IN V kw_every(const float* p) {
    if (S == 1) return *(const VU*)p;
    V r{};
    if (S == 2) {
        const V a = *(const VU*)p, b = *(const VU*)(p + W - 1);
        I at{};
        for (int i = 0; i < W; ++i) at[i] = 2 * i < W ? 2 * i : 2 * i + 1;
        r = __builtin_shuffle(a, b, at);
    } else {
        for (int i = 0; i < W; ++i) r[i] = p[i * S];
    }
    return r;
}
// The same from `from` on of a row of `size`, which may begin before it and end behind it: zeros there.
template <int S> KW_IN V kw_inside(const float* row, int64_t from, int64_t size) {
#if defined(__AVX512F__) && KW_WIDTH == 16
    const I at = kw_lanes() * S + (int32_t)from;
    const uint16_t mask = __builtin_ia32_cmpd512_mask(at, I{}, 5, -1)
                        & __builtin_ia32_cmpd512_mask(at, I{} + (int32_t)size, 1, -1);
    if (S == 1) return __builtin_ia32_loadups512_mask(row + from, V{}, mask);
    return __builtin_ia32_gathersiv16sf(V{}, row, at, mask, 4);
#else
    V r{};
    for (int i = 0; i < W; ++i) if (from + i * S >= 0 && from + i * S < size) r[i] = row[from + i * S];
    return r;
#endif
}
"""

_SETUP = """\
extern "C" void {name}(const float* in, const float* weight, const float* bias, float* out,
                       int64_t planes, int64_t channels, int64_t D, int64_t H, int64_t N,
                       int64_t OD, int64_t OH, int64_t ON) {{
    (void)weight; (void)bias; (void)channels;
    constexpr int KD = {kd}, KH = {kh}, KN = {kn}, SD = {sd}, SH = {sh}, SN = {sn};
    constexpr int PD = {pd}, PH = {ph}, PN = {pn}, LD = {ld}, LH = {lh}, LN = {ln};
    const int64_t rows = planes * OD * OH;
    #pragma omp parallel for schedule(static) if (rows * ON >= {threshold})
    for (int64_t row = 0; row < rows; ++row) {{
        const int64_t plane = row / (OD * OH), od = row / OH % OD, oh = row % OH;
        const float* from = in + plane / {repeats} * D * H * N;
        float* to = out + row * ON;
        const float* line[KD * KH];
        int tap[KD * KH], lines = 0;
        for (int i = 0; i < KD; ++i) for (int j = 0; j < KH; ++j) {{
            const int64_t d = od * SD - PD + i * LD, h = oh * SH - PH + j * LH;
            if (d < 0 || d >= D || h < 0 || h >= H) continue;
            tap[lines] = (i * KH + j) * KN;
            line[lines++] = from + (d * H + h) * N;
        }}
        (void)tap;
{body}
    }}
}}
"""

_POOL = """\
        // Down first, into a row with its padding; `slack` is read by the last vector and goes nowhere.
        const int64_t slack = (int64_t)W * (SN + 1) + KN * LN;
        float* const s = kw_scratch(PN + N + PN + ON * SN + slack);
        for (int64_t i = 0; i < PN; ++i) s[i] = {neutral};
        for (int64_t i = PN + N; i < PN + N + PN + slack; ++i) s[i] = {neutral};
        auto down = [&]<bool T>(int64_t i, int n) __attribute__((always_inline)) {{
            V acc = kw_splat({neutral});
            for (int k = 0; k < lines; ++k) {{ const V x = kw_load<T>(line[k] + i, n); acc = {both}; }}
            kw_store<T>(s + PN + i, acc, n);
        }};
        int64_t i = 0;
        for (; i + W <= N; i += W) down.template operator()<false>(i, W);
        if (i < N) down.template operator()<true>(i, (int)(N - i));
        for (int64_t o = 0; o < ON; o += W) {{
            V acc = kw_every<SN>(s + o * SN);
            _Pragma("GCC unroll 16") for (int j = 1; j < KN; ++j) {{
                const V x = kw_every<SN>(s + o * SN + j * LN); acc = {both};
            }}
            {scaled}
            if (o + W <= ON) kw_store<false>(to + o, acc, W); else kw_store<true>(to + o, acc, (int)(ON - o));
        }}"""

_DOT = """\
        const float* const w = weight + plane % channels * (KD * KH * KN);
        const float start = bias ? bias[plane % channels] : 0.0f;
        // From `low` to below `high` every tap lies inside the row.
        const int64_t low = (PN + SN - 1) / SN, last = N - 1 + PN - (KN - 1) * LN;
        int64_t high = last < 0 ? 0 : last / SN + 1;
        if (high > ON) high = ON;
        auto many = [&]<int U>(int64_t o) __attribute__((always_inline)) {{
            V acc[U];
            for (int u = 0; u < U; ++u) acc[u] = kw_splat(start);
            for (int k = 0; k < lines; ++k) {{
                const float *p = line[k] + o * SN - PN, *f = w + tap[k];
                _Pragma("GCC unroll 16") for (int j = 0; j < KN; ++j)
                    for (int u = 0; u < U; ++u) acc[u] += f[j] * kw_every<SN>(p + u * W * SN + j * LN);
            }}
            for (int u = 0; u < U; ++u) kw_store<false>(to + o + u * W, acc[u], W);
        }};
        auto edge = [&](int64_t o, int n) {{
            V acc = kw_splat(start);
            for (int k = 0; k < lines; ++k)
                for (int j = 0; j < KN; ++j) acc += w[tap[k] + j] * kw_inside<SN>(line[k], o * SN - PN + j * LN, N);
            kw_store<true>(to + o, acc, n);
        }};
        for (int64_t o = 0; o < ON;) {{
            if (o >= low && o + 4 * W <= high) {{ many.template operator()<4>(o); o += 4 * W; continue; }}
            if (o >= low && o + W <= high) many.template operator()<1>(o);
            else edge(o, (int)(ON - o < W ? ON - o : W));
            o += W;
        }}"""


def source(name: str, window: Window, threshold: int) -> str:
    """The function's text."""
    axes = ("d", "h", "n")
    numbers = {
        f"{letter}{axis}": getattr(window, word)[i]
        for letter, word in (("k", "kernel"), ("s", "stride"), ("p", "padding"), ("l", "dilation"))
        for i, axis in enumerate(axes)
    }
    body = _DOT.replace("{{", "{").replace("}}", "}")
    if window.kind != "dot":
        size = window.kernel[0] * window.kernel[1] * window.kernel[2]
        largest = window.kind == "max"
        body = _POOL.format(
            neutral="-__builtin_inff()" if largest else "0.0f",
            both="kw_max(acc, x)" if largest else "acc + x",
            scaled="" if largest else f"acc = acc / {size}.0f;",
        )
    return _SETUP.format(name=name, threshold=threshold, repeats=window.repeats, body=body, **numbers)


def arguments(call: Call, tensors: dict[str, Tensor]) -> list[str]:
    """Python texts of the call's arguments, its tensors being contiguous."""
    window = call.window
    assert window is not None
    shape, rank = call.output.shape, window.rank
    operands = [*call.operands, "", ""][:3] if window.kind == "dot" else [call.operands[0], "", ""]
    pointers = [f"{name}.data_ptr()" if name else "None" for name in operands]
    inside = ["1"] * (3 - rank) + list(tensors[call.operands[0]].shape[-rank:])
    outside = ["1"] * (3 - rank) + list(shape[-rank:])
    planes, channels = product(shape[:-rank]), shape[-rank - 1] if len(shape) > rank else "1"
    return [*pointers, f"{call.output.name}.data_ptr()", planes, channels, *inside, *outside]
