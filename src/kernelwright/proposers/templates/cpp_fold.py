# SPDX-License-Identifier: Apache-2.0
"""What the C++ of a region does along its rows: reductions in blocks, places of maxima, running sums."""

from __future__ import annotations

from kernelwright.proposers.templates.cpp_expr import NotEmittable, Writer, number
from kernelwright.proposers.templates.ir import SCANS, Region

START = {
    "sum": "V{}",
    "max": "kw_splat(-__builtin_inff())",
    "min": "kw_splat(__builtin_inff())",
    "argmax": "kw_splat(-__builtin_inff())",
}

PRELUDE = r"""
// The larger of (value, place) pairs: a NaN before any number, the earlier of equals.
KW_IN bool kw_beats(E a, int64_t i, E b, int64_t j) {
    if (a != a || b != b) return a != a && (b == b || i < j);
    return a > b || (a == b && i < j);
}
KW_IN I kw_ahead(V a, V b) { return (a > b) | ((a != a) & (b == b)); }
KW_IN void kw_best(V a, I at, int64_t base, E* best, int64_t* place) {
    for (int i = 0; i < W; ++i)
        if (kw_beats(a[i], base + at[i], *best, *place)) { *best = a[i]; *place = base + at[i]; }
}
template <bool T> KW_IN void kw_storel(int64_t* p, I v, int n) {
    const L l = __builtin_convertvector(v, L);
    if (!T) memcpy(p, &l, sizeof l); else for (int i = 0; i < n; ++i) p[i] = l[i];
}

// Running sums and products in float64, as torch's are; half a vector at a time, which is one register wide.
typedef double H __attribute__((vector_size(4 * W)));
typedef int64_t HL __attribute__((vector_size(4 * W)));
typedef E HV __attribute__((vector_size(sizeof(V) / 2)));
static constexpr int HW = W / 2;
// Lanes moved by S towards the end (or the start), those left open taken from `open`.
template <int S, bool BACK> KW_IN H kw_slide(H v, H open) {
    HL at{};
    for (int i = 0; i < HW; ++i) at[i] = BACK ? (i + S < HW ? i + S : HW + i) : (i >= S ? i - S : HW + i);
    return __builtin_shuffle(v, open, at);
}
template <bool BACK, bool PROD> KW_IN H kw_running(H v, double* carry) {
    const H unit = H{} + (PROD ? 1.0 : 0.0);
    H o = kw_slide<1, BACK>(v, unit);
    v = PROD ? v * o : v + o;
    if (HW > 2) { o = kw_slide<2, BACK>(v, unit); v = PROD ? v * o : v + o; }
    if (HW > 4) { o = kw_slide<4, BACK>(v, unit); v = PROD ? v * o : v + o; }
    v = PROD ? v * *carry : v + *carry;
    *carry = v[BACK ? 0 : HW - 1];
    return v;
}
template <bool T, bool BACK, bool PROD, bool BEFORE> KW_IN V kw_scan(V x, double* carry, int n) {
    if (T) for (int i = 0; i < W; ++i) x[i] = i < n ? x[i] : PROD ? 1.0f : 0.0f;
    HV half[2], out[2];
    memcpy(half, &x, sizeof x);
    for (int h = 0; h < 2; ++h) {
        const int k = BACK ? 1 - h : h;
        const H before = H{} + *carry;
        H v = kw_running<BACK, PROD>(__builtin_convertvector(half[k], H), carry);
        if (BEFORE) v = kw_slide<1, false>(v, before);
        out[k] = __builtin_convertvector(v, HV);
    }
    memcpy(&x, out, sizeof x);
    return x;
}
// The same for neighbouring rows, one in each lane.
template <bool PROD, bool BEFORE> KW_IN V kw_scan_lanes(V x, D* carry) {
    const D before = *carry, wide = __builtin_convertvector(x, D);
    *carry = PROD ? before * wide : before + wide;
    return __builtin_convertvector(BEFORE ? before : *carry, V);
}
"""


def needed(region: Region) -> bool:
    """Whether the region's code uses this prelude."""
    return any(value.op in SCANS or value.op == "row_argmax" for value in region.values)


def arguments(op: str) -> str:
    """Template arguments of a scan behind the tail's: from the end, product, before."""
    return ", ".join(str(word in op).lower() for word in ("back", "prod", "before"))


def first(op: str) -> str:
    """What a scan starts from."""
    return "1" if "prod" in op else "0"


_EXACT = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "div": "({} / {})",
    "neg": "(-{})",
    "sqrt": "__builtin_sqrt({})",
    "rsqrt": "(1.0 / __builtin_sqrt({}))",
    "reciprocal": "(1.0 / {})",
}


class Folds:
    """The part of a kernel that carries values from element to element of a row."""

    region: Region
    w: Writer

    def reduction(self, position: int) -> str:
        """``sum``, ``max``, ``min`` or ``argmax``."""
        op = self.region.values[position].op
        return "sum" if op == "pick" else op.removeprefix("row_").removeprefix("total_")

    def backward(self, scans: list[int]) -> bool:
        """Whether a pass with these scans walks from the end of the row; NotEmittable where they disagree."""
        directions = {self.region.values[i].op.endswith("_back") for i in scans}
        if len(directions) > 1:
            raise NotEmittable("two scans that meet")
        return True in directions

    def total_start(self, position: int) -> str:
        """The neutral element of a reduction as a double."""
        return {"sum": "0", "min": "__builtin_inf()"}.get(self.reduction(position), "-__builtin_inf()")

    def total_add(self, position: int, what: str) -> str:
        """One more partial result in ``sum<position>``."""
        op, name = self.reduction(position), f"sum{position}"
        if op == "sum":
            return f"{name} += {what};"
        sign = ">" if op == "max" else "<"
        return f"{{ const double h = {what}; if (h {sign} {name} || h != h) {name} = h; }}"

    def exact(self, position: int) -> str:
        """A number per row, or one in all, in float64 from sums that still are; empty where it is not arithmetic."""
        value = self.region.values[position]
        if value.op in ("row_sum", "total_sum"):
            return f"sum{position}"
        if value.op == "scalar":
            return f"s{value.index}"
        if value.op == "const":
            return f"(double){number(value.number).removeprefix('(E)')}"
        args = [self.exact(arg) for arg in value.args]
        if value.op not in _EXACT or not all(args):
            return ""
        return _EXACT[value.op].format(*args)

    def rounded(self, position: int) -> str:
        """The same as a vector, rounded once; empty for what is no result of a sum."""
        text = self.exact(position) if self.region.values[position].op in _EXACT else ""
        return f"kw_splat((E){text})" if "sum" in text else ""

    def open_row(self, positions: list[int]) -> None:
        """Before a pass over a row: the results that its blocks are folded into."""
        for position in positions:
            if self.reduction(position) == "argmax":
                start = "-__builtin_inff()"
                self.w.add(f"E best{position} = {start}; int64_t place{position} = INT64_MAX;")
            else:
                self.w.add(f"double sum{position} = {self.total_start(position)};")

    def open_block(self, positions: list[int], unroll: int) -> None:
        """Before a block of columns: one accumulator per vector in flight."""
        for position in positions:
            op = self.reduction(position)
            fill = f"for (int u = 0; u < {unroll}; ++u) acc{position}[u] = {START[op]};"
            self.w.add(f"V acc{position}[{unroll}]; {fill}")
            if op == "argmax":
                self.w.add(f"I at{position}[{unroll}]; for (int u = 0; u < {unroll}; ++u) at{position}[u] = I{{}};")

    def accumulate(self, position: int) -> str:
        """One vector of a row into its accumulators; beyond the end of the row is what changes nothing."""
        value, op = self.region.values[position], self.reduction(position)
        term = f"v{value.args[0]}"
        if value.op == "pick":
            index = f"(int32_t)v{value.args[1]} - (int32_t)c"
            term = f"kw_select(kw_lanes() == {index}, {term}, V{{}})"
        term = f"(T ? kw_select(kw_lanes() < n, {term}, {START[op]}) : {term})"
        acc = f"acc{position}[u]"
        if op == "argmax":
            ahead = f"const V t = {term}; const I m = kw_ahead(t, {acc});"
            place = f"at{position}[u] = m ? kw_lanes() + (int32_t)(c - b0) : at{position}[u];"
            return f"{{ {ahead} {acc} = m ? t : {acc}; {place} }}"
        return f"{acc} = {acc} + {term};" if op == "sum" else f"{acc} = kw_{op}({acc}, {term});"

    def close_block(self, positions: list[int], unroll: int) -> None:
        """After a block of columns: its vectors into the results of the row."""
        for position in positions:
            op = self.reduction(position)
            if op == "argmax":
                best = f"kw_best(acc{position}[u], at{position}[u], b0, &best{position}, &place{position});"
                self.w.add(f"for (int u = 0; u < {unroll}; ++u) {best}")
                continue
            joined = f"acc{position}[0]"
            for u in range(1, unroll):
                other = f"acc{position}[{u}]"
                joined = f"({joined} + {other})" if op == "sum" else f"kw_{op}({joined}, {other})"
            self.w.add(self.total_add(position, f"kw_h{op}({joined})"))

    def close_row(self, positions: list[int]) -> None:
        """After a pass over a row: its results as values."""
        for position in positions:
            if self.reduction(position) == "argmax":
                self.w.add(f"const int64_t v{position} = place{position};")
            else:
                self.w.add(f"const V v{position} = kw_splat((E)sum{position});")
