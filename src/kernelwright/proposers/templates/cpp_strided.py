# SPDX-License-Identifier: Apache-2.0
"""A region that reduces over a middle axis, as C++: vector lanes are neighbouring rows, so nothing is transposed."""

from __future__ import annotations

from kernelwright.proposers.templates import cpp_fold
from kernelwright.proposers.templates.cpp import Kernel
from kernelwright.proposers.templates.cpp_expr import NotEmittable, declared, expression
from kernelwright.proposers.templates.cpp_signature import signature
from kernelwright.proposers.templates.ir import COLUMN, CYCLE, F32, F64, I64, ROW, ROW_REDUCTIONS, SCANS, TOTAL

STRIP = 4096
"""Most neighbouring rows in a block, whose sums then lie in the first two caches. A walk along the reduced axis reads
as many elements on end before it jumps: sums over the 8192 rows of a 256 MiB matrix took 40 ms in strips of 16, each
of whose reads misses the TLB, 22 of 256, and 13 of 4096, where reading it takes 12 (2-core AMD EPYC)."""
FEW, MANY, PARTS = 4096, 8192, 32
"""Fewer rows than that, of at least so many columns, are added up in so many parts of the columns: the 64 sums of a
million columns took 21 ms where each thread read half of every 256 bytes, and eager 10."""
KEPT = 262144
"""Bytes that a block may keep between passes: half of a second-level cache of 512 KiB."""


_OUTSIDE = (ROW, CYCLE)
"""Kinds of values that are known for a row before its columns are walked."""
_LOADS = {F32: "kw_load", F64: "kw_load", I64: "kw_loadl", "bool": "kw_loadb"}


class Strided(Kernel):
    """Blocks of up to STRIP rows; each pass walks the reduced axis once for the whole block."""

    def source(self) -> str:
        """The function's text. Raises NotEmittable for totals, picks and whole numbers that repeat along the rows."""
        region, w = self.region, self.w
        for value in region.values:
            integers = value.kind in _OUTSIDE and value.dtype == I64 and value.op != "row_argmax"
            if value.kind == TOTAL or value.op == "pick" or integers:
                raise NotEmittable("not in a strided region")
        w.add(signature(self.name, region, self.types) + " {")
        self._before()
        w.add(f"constexpr int U = {STRIP} / W;")
        self._cyclic()
        self._run()
        self._in_strips()
        w.add("}")
        return "\n".join(w.lines) + "\n"

    def _run(self) -> None:
        """What is done for some vectors of rows from ``i0`` on: all of it, or one STEP of sums made in parts."""
        region, w, kept = self.region, self.w, len(self.cache_slot)
        w.add("// STEP 1 adds up the columns [from, to) of a part, 2 adds up the parts and does the rest; 0 is both.")
        w.add("auto run = [&]<bool T, int ONLY, int STEP>(const int64_t o, const int64_t i0, const int some,")
        w.add("    const int n, const int64_t from, const int64_t to, double* parts, const int64_t size)")
        w.add("    __attribute__((always_inline)) {")
        w.add("const int S = ONLY ? ONLY : some;")
        w.add("const int64_t r0 = o * N + i0; (void)r0; (void)n; (void)parts; (void)size;")
        for slot in self.cache_slot.values():
            w.add(f"E* const kept{slot} = kw_scratch({kept} * C * S * W) + {slot} * C * S * W;")
        for number in range(self.plan.passes + 1):
            self._row_values(number)
            if number < self.plan.passes:
                self._strided_pass(number)
        for slot, position in enumerate(region.outputs):
            if region.values[position].kind == ROW:
                store = {"bool": "kw_storeb", I64: "kw_storel"}.get(region.values[position].dtype, "kw_store")
                self._per_vector(f"{store}<T>(out{slot} + r0 + u * W, r{position}[u], n);")
        w.add("};")

    def _cyclic(self) -> None:
        """How a value that repeats along the rows is read: on end, where its period holds whole lines of them."""
        for load in sorted({_LOADS[v.dtype] for v in self.region.values if v.kind == CYCLE and v.op == "input"}):
            w, kind = self.w, "I" if load == "kw_loadb" else "V"
            w.add(f"auto {load}_cyclic = [&]<bool T, typename P>(const P* p, int64_t r, int64_t period, int n)")
            w.add(f"    __attribute__((always_inline)) -> {kind} {{")
            w.add(f"if (period % N == 0) return {load}<T>(p + r % period, n);")
            w.add("P some[W]; for (int i = 0; i < W; ++i) some[i] = p[(r + i) % period];")
            w.add(f"return {load}<false>(some, W);")
            w.add("};")

    def _in_strips(self) -> None:
        w, kept = self.w, len(self.cache_slot)
        if self._in_parts():
            self._split()
        # Strips are halved until every thread has one; whose column a sum is of does not depend on it.
        w.add("int64_t strip = U * W;")
        w.add("while (strip > 2 * W && (R / N * ((N + strip - 1) / strip) < kw_threads()")
        w.add(f"    || {kept} * C * strip * (int64_t)sizeof(E) > {KEPT})) strip /= 2;")
        w.add("const int64_t chunks = (N + strip - 1) / strip, blocks = R / N * chunks;")
        w.add(f"#pragma omp parallel for schedule(static) if (R * C >= {self.knobs.threshold})")
        w.add("for (int64_t block = 0; block < blocks; ++block) {")
        w.add("const int64_t o = block / chunks, s0 = block % chunks * strip;")
        w.add("const int lanes = (int)(N - s0 < strip ? N - s0 : strip), whole = lanes / W * W;")
        # In the narrowest strips, those whose sums stay in registers.
        w.add("if (whole == 2 * W) run.template operator()<false, 2, 0>(o, s0, 2, W, 0, C, nullptr, 0);")
        w.add("else if (whole) run.template operator()<false, 0, 0>(o, s0, whole / W, W, 0, C, nullptr, 0);")
        w.add("const int rest = lanes - whole;")
        w.add("if (rest) run.template operator()<true, 1, 0>(o, s0 + whole, 1, rest, 0, C, nullptr, 0);")
        if self.knobs.stream:
            w.add("if (streaming) kw_fence();")
        w.add("}")

    def _in_parts(self) -> list[int]:
        """The reductions of a region that is nothing else: each may be made of those of parts of its columns."""
        reductions, outputs, kept = self._targets(0)
        others = self.plan.passes > 1 or outputs or kept or self._scans(0)
        return [] if others or any(self.reduction(p) == "argmax" for p in reductions) else reductions

    def _split(self) -> None:
        """Few rows of many columns: in PARTS of the columns, as the sizes alone say, whose sums are added in order."""
        w, count = self.w, len(self._in_parts())
        w.add(f"if (R < {FEW} && C >= {MANY}) {{")
        w.add("const int64_t all = (N + W - 1) / W * W, strip = all < U * W ? all : U * W;")
        w.add("const int64_t chunks = (N + strip - 1) / strip, blocks = R / N * chunks;")
        w.add(f"constexpr int64_t P = {PARTS}; const int64_t size = {count} * strip, each = (C + P - 1) / P;")
        w.add("double* const sums = (double*)malloc(sizeof(double) * blocks * P * size);")
        w.add("if (sums) {")
        for step, jobs in ((1, "blocks * P"), (2, "blocks")):
            w.add(f"#pragma omp parallel for schedule(static) if (R * C >= {self.knobs.threshold})")
            w.add(f"for (int64_t job = 0; job < {jobs}; ++job) {{")
            w.add(f"const int64_t block = {'job / P' if step == 1 else 'job'}, o = block / chunks;")
            w.add("const int64_t s0 = block % chunks * strip;")
            w.add(f"double* const mine = sums + {'job' if step == 1 else 'job * P'} * size;")
            bounds = "job % P * each, job % P * each + each < C ? job % P * each + each : C" if step == 1 else "0, 0"
            w.add("const int lanes = (int)(N - s0 < strip ? N - s0 : strip), whole = lanes / W * W;")
            w.add(f"if (whole) run.template operator()<false, 0, {step}>(o, s0, whole / W, W, {bounds}, mine, size);")
            w.add(f"if (lanes > whole) run.template operator()<true, 1, {step}>")
            w.add(f"    (o, s0 + whole, 1, lanes - whole, {bounds}, mine + {count} * whole, size);")
            w.add("}")
        w.add("free(sums); return; }")
        w.add("}")

    def _before(self) -> None:
        super()._before()
        for number, line in enumerate(self.w.lines):
            # Whole vectors of an aligned inner extent are what may be stored past the cache here.
            self.w.lines[number] = line.replace("(C % W == 0 || R == 1)", "N % W == 0")

    def _per_vector(self, statement: str, names: tuple[int, ...] = ()) -> None:
        self.w.add("for (int u = 0; u < S; ++u) {")
        self._aliases(names)
        self.w.add(statement)
        self.w.add("}")

    def _aliases(self, positions: tuple[int, ...]) -> None:
        for position in positions:
            value = self.region.values[position]
            if value.kind in _OUTSIDE:
                kind = "I" if value.op == "row_argmax" else declared(value)  # one index in each lane, as in _finish
                self.w.add(f"const {kind} v{position} = r{position}[u];")

    def _row_values(self, number: int) -> None:
        for position, value in enumerate(self.region.values):
            if value.kind not in _OUTSIDE or self.plan.stage[position] != number or value.op in ROW_REDUCTIONS:
                continue
            self.w.add(f"{declared(value)} r{position}[U];")
            if value.op == "input" and value.kind == CYCLE:
                given = f"in{value.index}, r0 + u * W, period{value.index}, n"
                text = f"{_LOADS[value.dtype]}_cyclic.template operator()<T>({given})"
            elif value.op == "input":
                text = f"{_LOADS[value.dtype]}<T>(in{value.index} + r0 + u * W, n)"
            else:
                text = expression(self.region, position)
            self._per_vector(f"r{position}[u] = {text};", value.args)

    def _strided_pass(self, number: int) -> None:
        reductions, outputs, kept = self._targets(number)
        if not (reductions or outputs or kept):
            return
        w, values = self.w, self.region.values
        lines, scans = self._body(self._roots(number), number), self._scans(number)
        self._open(reductions, scans)
        # What goes out does so a row at a time; what is only added up is so from a few rows, in registers.
        together = 1 if outputs else 2 * self.knobs.unroll
        w.add("for (int64_t b0 = from; b0 < to; b0 += 16) {")
        w.add("const int64_t b1 = b0 + 16 < to ? b0 + 16 : to;")
        w.add("auto rows = [&]<int G>(const int64_t d0) __attribute__((always_inline)) {")
        w.add("for (int u = 0; u < S; ++u) {")
        w.add(f'_Pragma("GCC unroll {together}") for (int64_t d = d0; d < d0 + G; ++d) {{')
        w.add(f"const int64_t c = {'C - 1 - d' if self.backward(scans) else 'd'};")
        w.add("const int64_t at = (o * C + c) * N + i0; (void)at;")
        self._aliases(tuple(p for p, v in enumerate(values) if v.kind in _OUTSIDE and self._known(p, number)))
        for line in lines:
            w.add(line)
        for position in reductions:
            w.add(self.accumulate(position))
        for position in kept:
            w.add(f"*(V*)(kept{self.cache_slot[position]} + (c * S + u) * W) = v{position};")
        for position in outputs:
            self._write(position)
        w.add("}")
        w.add("}")
        w.add("};")
        w.add("int64_t row = b0;")
        w.add(f"for (; row + {together} <= b1; row += {together}) rows.template operator()<{together}>(row);")
        if together > 1:
            w.add("for (; row < b1; ++row) rows.template operator()<1>(row);")
        for position in reductions:
            if self.reduction(position) == "sum":
                w.add("for (int u = 0; u < S; ++u) {")
                w.add(f"sum{position}[u] += __builtin_convertvector(acc{position}[u], D); acc{position}[u] = V{{}};")
                w.add("}")
        w.add("}")
        if self._in_parts():
            self._joined(reductions)
        for position in reductions:
            self._finish(position)

    def _joined(self, reductions: list[int]) -> None:
        """A part leaves its sums, or those of all parts are added up: a strip's lie side by side, parts apart."""
        w = self.w
        for index, position in enumerate(reductions):
            op = self.reduction(position)
            own = f"sum{position}[u]" if op == "sum" else f"acc{position}[u]"
            w.add("if constexpr (STEP == 1) for (int u = 0; u < S; ++u) for (int i = 0; i < W; ++i)")
            w.add(f"    parts[({index} * S + u) * W + i] = {own}[i];")
            w.add(f"if constexpr (STEP == 2) for (int64_t p = 0; p < {PARTS}; ++p) for (int u = 0; u < S; ++u) {{")
            kind = "D" if op == "sum" else "V"
            w.add(f"{kind} x; const double* const at = parts + p * size + ({index} * S + u) * W;")
            w.add("for (int i = 0; i < W; ++i) x[i] = at[i];")
            w.add(f"{own} = {own} + x;" if op == "sum" else f"{own} = kw_{op}({own}, x);")
            w.add("}")
        w.add("if constexpr (STEP == 1) return;")

    def _open(self, reductions: list[int], scans: list[int]) -> None:
        """What a pass carries along the reduced axis, for every row of the block."""
        w = self.w
        for position in scans:
            start = f"carry{position}[u] = D{{}} + {cpp_fold.first(self.region.values[position].op)};"
            w.add(f"D carry{position}[U]; for (int u = 0; u < S; ++u) {start}")
        for position in reductions:
            op = self.reduction(position)
            w.add(f"V acc{position}[U]; for (int u = 0; u < S; ++u) acc{position}[u] = {cpp_fold.START[op]};")
            if op == "argmax":
                w.add(f"I at{position}[U]; for (int u = 0; u < S; ++u) at{position}[u] = I{{}};")
            if op == "sum":
                w.add(f"D sum{position}[U]; for (int u = 0; u < S; ++u) sum{position}[u] = D{{}};")

    def _finish(self, position: int) -> None:
        """The reduction's result for every row of the block."""
        op = self.reduction(position)
        total = {"sum": f"__builtin_convertvector(sum{position}[u], V)", "argmax": f"at{position}[u]"}
        text, kind = total.get(op, f"acc{position}[u]"), "I" if op == "argmax" else "V"
        self.w.add(f"{kind} r{position}[U]; for (int u = 0; u < S; ++u) r{position}[u] = {text};")

    def _known(self, position: int, number: int) -> bool:
        return self.plan.stage[position] <= number

    def accumulate(self, position: int) -> str:
        """One element of each row; every lane is a row, so nothing lies beyond the end of one."""
        op, acc = self.reduction(position), f"acc{position}[u]"
        term = f"v{self.region.values[position].args[0]}"
        if op == "argmax":
            at = f"at{position}[u] = m ? I{{}} + (int32_t)c : at{position}[u];"
            return f"{{ const I m = kw_ahead({term}, {acc}); {acc} = m ? {term} : {acc}; {at} }}"
        return f"{acc} = {acc} + {term};" if op == "sum" else f"{acc} = kw_{op}({acc}, {term});"

    def _write(self, position: int) -> None:
        at = f"out{self.slots[position]} + at + u * W"
        if self.region.values[position].dtype == "bool":
            self.w.add(f"kw_storeb<T>({at}, v{position}, n);")
        elif self.knobs.stream:
            self.w.add(f"if (!T && streaming) kw_stream({at}, v{position}); else kw_store<T>({at}, v{position}, n);")
        else:
            self.w.add(f"kw_store<T>({at}, v{position}, n);")

    def _inner(self, position: int, number_of_pass: int) -> str:
        value = self.region.values[position]
        if self._reloaded(position, number_of_pass):
            return f"const V v{position} = *(const V*)(kept{self.cache_slot[position]} + (c * S + u) * W);"
        if value.op in SCANS:
            kind = ", ".join(str(word in value.op).lower() for word in ("prod", "before"))
            return f"const V v{position} = kw_scan_lanes<{kind}>(v{value.args[0]}, &carry{position}[u]);"
        if value.op != "input":
            return f"const {declared(value)} v{position} = {expression(self.region, position)};"
        if value.kind == COLUMN:
            read = f"in{value.index}[c]"
            text = f"V{{}} != V{{}} + (E){read}" if value.dtype == "bool" else f"kw_splat((E){read})"
            return f"const {declared(value)} v{position} = {text};"
        return f"const {declared(value)} v{position} = {_LOADS[value.dtype]}<T>(in{value.index} + at + u * W, n);"
