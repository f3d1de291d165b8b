# SPDX-License-Identifier: Apache-2.0
"""float16 and bfloat16 in C++: read into float32 and rounded, to nearest even, where they are written.

Plain integer vectors, no instruction set beyond what the compiler picks. ``tests/proposers/test_templates_halves.py``
compares every value of both types, and roundings of float32 around them, with torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.proposers.templates.ir import Program

CTYPES = {"float16": "KwHalf", "bfloat16": "KwBrain"}

PRELUDE = r"""
typedef uint16_t U16 __attribute__((vector_size(2 * W)));
typedef uint32_t U32 __attribute__((vector_size(4 * W)));
KW_IN U32 kw_bits(V v) { U32 r; memcpy(&r, &v, sizeof r); return r; }
KW_IN V kw_of_bits(U32 u) { V r; memcpy(&r, &u, sizeof r); return r; }

struct KwBrain {
    uint16_t bits;
    KW_IN V widen(U16 h) { return kw_of_bits(__builtin_convertvector(h, U32) << 16); }
    KW_IN U16 narrow(V v) {
        const U32 u = kw_bits(v), even = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        return __builtin_convertvector((v != v) ? U32{} + 0x7fc0u : even, U16);
    }
    operator float() const { return widen(U16{} + bits)[0]; }
    KwBrain& operator=(float x) { V v{}; v[0] = x; bits = narrow(v)[0]; return *this; }
};
struct KwHalf {
    uint16_t bits;
    KW_IN V widen(U16 h) {
        const U32 u = __builtin_convertvector(h, U32), sign = (u & 0x8000u) << 16, rest = (u & 0x7fffu) << 13;
        // The exponent's bias is put right by a product, which numbers below the normal ones come through too.
        const U32 number = kw_bits(kw_of_bits(rest) * 0x1p112f), special = rest | 0x7f800000u;
        return kw_of_bits(sign | ((rest >= (0x7c00u << 13)) ? special : number));
    }
    KW_IN U16 narrow(V v) {
        const U32 u = kw_bits(v), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
        const U32 normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
        const U32 small = kw_bits(kw_of_bits(a) + 0.5f) - 0x3f000000u;  // the addition rounds
        U32 r = (a < (113u << 23)) ? small : normal;
        r = (a >= 0x477ff000u) ? U32{} + 0x7c00u : r;
        r = (v != v) ? U32{} + 0x7e00u : r;
        return __builtin_convertvector(r | sign, U16);
    }
    operator float() const { return widen(U16{} + bits)[0]; }
    KwHalf& operator=(float x) { V v{}; v[0] = x; bits = narrow(v)[0]; return *this; }
};
template <bool T, class H> KW_IN V kw_load_half(const H* p, int n) {
    U16 h{};
    if (!T) memcpy(&h, p, sizeof h); else for (int i = 0; i < n; ++i) h[i] = p[i].bits;
    return H::widen(h);
}
template <bool T, class H> KW_IN void kw_store_half(H* p, V v, int n) {
    const U16 h = H::narrow(v);
    if (!T) memcpy(p, &h, sizeof h); else for (int i = 0; i < n; ++i) p[i].bits = h[i];
}
template <bool T> KW_IN V kw_load(const KwHalf* p, int n) { return kw_load_half<T>(p, n); }
template <bool T> KW_IN V kw_load(const KwBrain* p, int n) { return kw_load_half<T>(p, n); }
template <bool T> KW_IN void kw_store(KwHalf* p, V v, int n) { kw_store_half<T>(p, v, n); }
template <bool T> KW_IN void kw_store(KwBrain* p, V v, int n) { kw_store_half<T>(p, v, n); }
KW_IN void kw_stream(KwHalf* p, V v) { kw_store_half<false>(p, v, W); }
KW_IN void kw_stream(KwBrain* p, V v) { kw_store_half<false>(p, v, W); }
KW_IN V kw_as_f16(V v) { return KwHalf::widen(KwHalf::narrow(v)); }
KW_IN V kw_as_bf16(V v) { return KwBrain::widen(KwBrain::narrow(v)); }
"""


def needed(program: Program) -> bool:
    """Whether some region reads, writes or rounds to one of the two types."""
    tensors = program.tensors()
    names = {name for fused in program.regions() for name in (*fused.inputs, *(t.name for t in fused.outputs))}
    rounds = any(v.op in ("as_f16", "as_bf16") for fused in program.regions() for v in fused.region.values)
    return rounds or any(tensors[name].dtype in CTYPES for name in names)


def types(program: Program, names: Iterable[str]) -> tuple[str, ...]:
    """torch's names of the types of some tensors."""
    tensors = program.tensors()
    return tuple(tensors[name].dtype for name in names)
