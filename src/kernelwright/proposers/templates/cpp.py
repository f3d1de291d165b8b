# SPDX-License-Identifier: Apache-2.0
"""One region as one C++ function: blocks of rows in parallel, a few passes over each row while it is in cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.proposers.templates import cpp_expr, cpp_fold
from kernelwright.proposers.templates.cpp_expr import NotEmittable, Plan, Writer, declared, expression, hoisted, number
from kernelwright.proposers.templates.cpp_signature import Types, banded, inputs_of, signature
from kernelwright.proposers.templates.ir import (
    BAND,
    COLUMN,
    CYCLE,
    F32,
    F64,
    FULL,
    I64,
    ROW,
    ROW_REDUCTIONS,
    SCALAR,
    SCANS,
    TILE,
    TOTAL,
    TOTAL_REDUCTIONS,
    Region,
)  # fmt: skip
from kernelwright.tuning import Value as Setting

LONGEST_SUM = 64
"""Float32 additions in a row of one lane, before the sum goes on in float64."""
NEAR = 32768
"""Elements of a row up to which the next one fits beside it in a second-level cache of 512 KiB or more."""


@dataclass(frozen=True)
class Knobs:
    """The open parameters of a kernel, closed."""

    width: int
    unroll: int
    threshold: int
    """Elements below which one thread does it all."""
    stream: bool
    pages: str
    """How fresh output memory is first touched: ``plain``, ``huge`` (advised) or ``populate`` (faulted by block)."""
    cache_cost: int
    block: int
    """Kibi-elements handed to a thread at a time: whole rows, at least one; at most a 64th of the work."""
    ahead: bool
    """The last pass over a row, which only writes to memory, fetches the next row into the second-level cache."""

    @staticmethod
    def of(values: Mapping[str, Setting]) -> Knobs:
        """From a tuner's choice; absent names take the first value of the space."""
        get = values.get
        return Knobs(
            width=int(get("width", 0)), unroll=int(get("unroll", 2)), threshold=int(get("threshold", 32768)),
            stream=bool(get("stream", True)), pages=str(get("pages", "plain")),
            cache_cost=int(get("cache_cost", 6)), block=int(get("block", 64)), ahead=bool(get("ahead", True)),
        )  # fmt: skip


class Kernel(cpp_fold.Folds):
    """Emits one region that is not strided."""

    def __init__(self, name: str, region: Region, knobs: Knobs, types: Types = ((), ())) -> None:
        self.name, self.region, self.knobs, self.types = name, region, knobs, types
        self.plan: Plan = cpp_expr.plan(region, knobs.cache_cost)
        self.slots = {position: slot for slot, position in enumerate(region.outputs)}
        self.cache_slot = {position: slot for slot, position in enumerate(sorted(self.plan.cached))}
        self.totals = [i for i, v in enumerate(region.values) if v.op in TOTAL_REDUCTIONS]
        self.w = Writer()

    def source(self) -> str:
        """The function's text."""
        w, region = self.w, self.region
        w.add(signature(self.name, region, self.types) + " {")
        w.add("(void)R; (void)C; (void)N;")
        w.add(f"constexpr int64_t BLOCK = {LONGEST_SUM * self.knobs.unroll} * W;")
        self._before()
        extent, least = ("C", 1024) if region.flat else ("R", 1)
        unit = f"{self.knobs.block * 1024}" + ("" if region.flat else " / (C > 0 ? C : 1)")
        # Partial sums belong to blocks, which depend on the sizes alone: no result depends on the thread count.
        w.add(f"int64_t unit = {unit};")
        w.add(f"if (unit > {extent} / 64) unit = {extent} / 64 / {least} * {least};")
        w.add(f"if (unit < {least}) unit = {least};")
        w.add(f"const int64_t blocks = ({extent} + unit - 1) / unit;")
        for position in self.totals:
            w.add(f"double* part{position} = (double*)malloc(sizeof(double) * (blocks > 0 ? blocks : 1));")
        w.add(f"#pragma omp parallel for schedule(static) if (R * C >= {self.knobs.threshold})")
        w.add("for (int64_t block = 0; block < blocks; ++block) {")
        for position in self.totals:
            w.add(f"double sum{position} = {self.total_start(position)};")
        if region.flat:
            w.add("const int64_t first = block * unit, last = first + unit < C ? first + unit : C;")
            self._populate("first", "last - first")
            self._row("first", "last")
        else:
            self._rows()
        for position in self.totals:
            w.add(f"part{position}[block] = sum{position};")
        if self.knobs.stream:
            w.add("if (streaming) kw_fence();")
        w.add("}")
        self._after()
        w.add("}")
        return "\n".join(w.lines) + "\n"

    def _before(self) -> None:
        for slot, position in enumerate(self.region.outputs):
            if self.region.values[position].kind == FULL and self.knobs.pages == "huge":
                self.w.add(f"kw_huge(out{slot}, R * C * (int64_t)sizeof(*out{slot}));")
        if self.knobs.stream:
            full = [s for p, s in self.slots.items() if self.region.values[p].kind == FULL]
            aligned = "".join(f" && (uintptr_t)out{s} % sizeof(V) == 0" for s in full)
            aligned += " && band % W == 0" if banded(self.region) else ""
            self.w.add(f"const bool streaming = R * C >= 2097152 && (C % W == 0 || R == 1){aligned};")
        for position, value in enumerate(self.region.values):
            if value.kind == SCALAR:
                self.w.add(f"const {declared(value)} v{position} = {self._outer(position)};")

    def _populate(self, start: str, count: str) -> None:
        if self.knobs.pages == "populate":
            for slot, position in enumerate(self.region.outputs):
                if self.region.values[position].kind == FULL and self.region.values[position].dtype in (F32, F64):
                    self.w.add(f"kw_populate(out{slot} + {start}, ({count}) * (int64_t)sizeof(*out{slot}));")

    def _outer(self, position: int) -> str:
        """A value that is constant along a row."""
        value = self.region.values[position]
        if value.op == "const":
            return f"kw_splat({number(value.number)})"
        if value.op == "scalar":
            return f"kw_splat((E)s{value.index})"
        if value.op == "input":
            period = f"period{value.index}"
            share = f"r % ({period} / (C / band)) * (C / band) + e0 / band"
            at = {ROW: "r", CYCLE: f"r % {period}", SCALAR: "0", BAND: share}[value.kind]
            read = f"in{value.index}[{at}]"
            if value.dtype == I64:
                return read
            return f"V{{}} != V{{}} + (E){read}" if value.dtype == "bool" else f"kw_splat({read})"
        if value.op == "list":
            return f"r * (int64_t)s{self.region.values[value.args[0]].index}"
        if value.op == "pick":
            source, index = (self.region.values[i] for i in value.args)
            if index.op != "input":
                raise NotEmittable("a computed index")
            column = f"v{value.args[1]}"
            guard = f"(uint64_t){column} < (uint64_t)C"
            return f'kw_splat({guard} ? in{source.index}[r * C + {column}] : __builtin_nanf(""))'
        return (self.rounded(position) if value.kind == ROW else "") or expression(self.region, position)

    def _rows(self) -> None:
        w = self.w
        w.add("const int64_t first_row = block * unit, last_row = first_row + unit < R ? first_row + unit : R;")
        if self.cache_slot:
            w.add("const int64_t K = (C + 2 * W - 1) / W * W;  // a vector may begin anywhere in a row cut into bands")
        for slot in self.cache_slot.values():
            w.add(f"E* const kept{slot} = kw_scratch({len(self.cache_slot)} * K) + {slot} * K;")
        self._populate("first_row * C", "(last_row - first_row) * C")
        w.add("for (int64_t r = first_row; r < last_row; ++r) {")
        for index, value in sorted(inputs_of(self.region).items()):
            if value.kind == TILE and value.op == "input":
                w.add(f"const int64_t tile{index} = r % (period{index} / C) * C;")
        self._row("0", "C")
        w.add("}")

    def _row(self, first: str, last: str) -> None:
        region, w = self.region, self.w
        for number_of_pass in range(self.plan.passes + 1):
            for position, value in enumerate(region.values):
                if value.kind in (ROW, CYCLE) and self.plan.stage[position] == number_of_pass:
                    if value.op not in ROW_REDUCTIONS and not self._masked_pick(position):
                        w.add(f"const {declared(value)} v{position} = {self._outer(position)};")
            if number_of_pass < self.plan.passes:
                self._pass(number_of_pass, first, last)
        for slot, position in enumerate(region.outputs):
            value = region.values[position]
            if value.kind == ROW:
                lane = {"bool": "(uint8_t)(v%d[0] & 1)", I64: "v%d"}.get(value.dtype, "v%d[0]")
                w.add(f"out{slot}[r] = {lane % position};")
        for position in self.totals:
            arg = region.values[position].args[0]
            if region.values[arg].kind == ROW:
                w.add(self.total_add(position, f"v{arg}[0]"))

    def _masked_pick(self, position: int) -> bool:
        value = self.region.values[position]
        return value.op == "pick" and self.region.values[value.args[0]].op != "input"

    def _targets(self, number_of_pass: int) -> tuple[list[int], list[int], list[int]]:
        """(reductions, outputs, values to keep) of a pass."""
        stage, values = self.plan.stage, self.region.values
        reductions = []
        for position, value in enumerate(values):
            if value.op in ROW_REDUCTIONS or self._masked_pick(position):
                if stage[position] - 1 == number_of_pass:
                    reductions.append(position)
            elif position in self.totals and values[value.args[0]].kind == FULL:
                if stage[value.args[0]] == number_of_pass:
                    reductions.append(position)
        outputs = [p for p in self.slots if values[p].kind == FULL and stage[p] == number_of_pass]
        kept = [p for p in self.cache_slot if stage[p] == number_of_pass]
        return reductions, outputs, kept

    def _pass(self, number_of_pass: int, first: str, last: str) -> None:
        reductions, outputs, kept = self._targets(number_of_pass)
        if not (reductions or outputs or kept):
            return
        w, unroll = self.w, self.knobs.unroll
        of_row = [p for p in reductions if p not in self.totals]
        self.open_row(of_row)
        scans = self._scans(number_of_pass)
        for position in scans:
            w.add(f"double carry{position} = {cpp_fold.first(self.region.values[position].op)};")
        if bands := self._bands(number_of_pass):
            w.add("for (int64_t e0 = 0; e0 < C; e0 += band) {")
            for position in bands:
                w.add(f"const {declared(self.region.values[position])} v{position} = {self._outer(position)};")
            first, last = "e0", "(e0 + band)"
        if (back := self.backward(scans)) and bands:
            raise NotEmittable("a scan over bands")
        if back:
            w.add(f"for (int64_t b0 = {first} + ({last} - {first} - 1) / BLOCK * BLOCK; b0 >= {first}; b0 -= BLOCK) {{")
        else:
            w.add(f"for (int64_t b0 = {first}; b0 < {last}; b0 += BLOCK) {{")
        w.add(f"const int64_t b1 = b0 + BLOCK < {last} ? b0 + BLOCK : {last};")
        self.open_block(reductions, unroll)
        self._step(number_of_pass)
        if back:
            w.add("int64_t c = b0 + (b1 - b0) / W * W;")
            w.add("if (c < b1) step.template operator()<true>(c, 0, (int)(b1 - c));")
            w.add("while ((c -= W) >= b0) step.template operator()<false>(c, 0, W);")
        else:
            w.add("int64_t c = b0;")
            w.add(f"for (; c + {unroll} * W <= b1; c += {unroll} * W)")
            w.add(f'    _Pragma("GCC unroll {unroll}") for (int u = 0; u < {unroll}; ++u)')
            w.add("        step.template operator()<false>(c + u * W, u, W);")
            w.add("for (; c + W <= b1; c += W) step.template operator()<false>(c, 0, W);")
            w.add("if (c < b1) step.template operator()<true>(c, 0, (int)(b1 - c));")
        self.close_block(reductions, unroll)
        w.add("}")
        if bands:
            w.add("}")
        self.close_row(of_row)

    def _bands(self, number_of_pass: int) -> list[int]:
        """Values of this pass that are shared by bands of columns."""
        values, found = self.region.values, set()
        stack = self._needed(self._roots(number_of_pass), number_of_pass)
        stack = [a for p in stack if not self._reloaded(p, number_of_pass) for a in values[p].args] + stack
        while stack:
            position = stack.pop()
            if values[position].kind == BAND and position not in found:
                found.add(position)
                stack.extend(values[position].args)
        return sorted(found)

    def _roots(self, number_of_pass: int) -> list[int]:
        reductions, outputs, kept = self._targets(number_of_pass)
        return [self.region.values[p].args[0] for p in reductions] + outputs + kept

    def _scans(self, number_of_pass: int) -> list[int]:
        """Running sums that this pass computes (again)."""
        inside = self._needed(self._roots(number_of_pass), number_of_pass)
        return [p for p in inside if self.region.values[p].op in SCANS and not self._reloaded(p, number_of_pass)]

    def _step(self, number_of_pass: int) -> None:
        """One vector of a pass as a lambda: definitions, accumulations, stores."""
        w = self.w
        reductions, outputs, kept = self._targets(number_of_pass)
        w.add("auto step = [&]<bool T>(int64_t c, int u, int n) __attribute__((always_inline)) {")
        w.add("(void)u; (void)n;")
        self._fetch_ahead(number_of_pass)
        for line in self._body(self._roots(number_of_pass), number_of_pass):
            w.add(line)
        for position in reductions:
            w.add(self.accumulate(position))
        for position in kept:
            w.add(f"*(VU*)(kept{self.cache_slot[position]} + c) = v{position};")
        for position in outputs:
            self._write(position)
        w.add("};")

    def _fetch_ahead(self, number_of_pass: int) -> None:
        """RMSNorm of 1024 x 4096 from memory took 1.15 ms without and 0.81 ms with it (2 Zen 4 cores): the hardware
        stops at every page, and fetches nothing while a pass reads from cache and writes."""
        if not self.knobs.ahead or self.region.flat or number_of_pass == 0 or number_of_pass + 1 < self.plan.passes:
            return
        for index, value in sorted(inputs_of(self.region).items()):
            if value.kind == FULL and value.op == "input":
                self.w.add(f"if (C <= {NEAR}) __builtin_prefetch(in{index} + (r + 1) * C + c, 0, 2);")

    def _write(self, position: int) -> None:
        at = f"out{self.slots[position]} + " + ("c" if self.region.flat else "r * C + c")
        if self.region.values[position].dtype == "bool":
            self.w.add(f"kw_storeb<T>({at}, v{position}, n);")
        elif self.knobs.stream:
            self.w.add(f"if (!T && streaming) kw_stream({at}, v{position}); else kw_store<T>({at}, v{position}, n);")
        else:
            self.w.add(f"kw_store<T>({at}, v{position}, n);")

    def _body(self, roots: list[int], number_of_pass: int) -> list[str]:
        """Loop-level definitions that the roots need in this pass, in order."""
        return [self._inner(position, number_of_pass) for position in self._needed(roots, number_of_pass)]

    def _needed(self, roots: list[int], number_of_pass: int) -> list[int]:
        needed: set[int] = set()
        stack = list(roots)
        while stack:
            position = stack.pop()
            value = self.region.values[position]
            if position in needed or hoisted(value):
                continue
            needed.add(position)
            if not self._reloaded(position, number_of_pass):
                stack.extend(value.args)
        return sorted(needed)

    def _reloaded(self, position: int, number_of_pass: int) -> bool:
        return position in self.cache_slot and self.plan.stage[position] < number_of_pass

    def _inner(self, position: int, number_of_pass: int) -> str:
        value = self.region.values[position]
        if self._reloaded(position, number_of_pass):
            return f"const V v{position} = *(const VU*)(kept{self.cache_slot[position]} + c);"
        if value.op in SCANS:
            scan = f"kw_scan<T, {cpp_fold.arguments(value.op)}>(v{value.args[0]}, &carry{position}, n)"
            return f"const V v{position} = {scan};"
        if value.op == "bag":
            return self._bag(position)
        if value.op == "take":
            row = f"kw_row(v{value.args[0]}, (int64_t)s{self.region.values[value.args[1]].index})"
            return f"const V v{position} = kw_load<T>(in{value.index} + {row} * C + c, n);"
        if value.op != "input":
            return f"const {declared(value)} v{position} = {expression(self.region, position)};"
        at = "c" if value.kind == COLUMN or self.region.flat else "r * C + c"
        at = f"tile{value.index} + c" if value.kind == TILE else at
        load = {F32: "kw_load", F64: "kw_load", I64: "kw_loadl", "bool": "kw_loadb"}[value.dtype]
        return f"const {declared(value)} v{position} = {load}<T>(in{value.index} + {at}, n);"

    def _bag(self, position: int) -> str:
        """The sum of several rows of a table, 32 at a time: a long sum of one by one rounds too often."""
        value, values = self.region.values[position], self.region.values
        length, count = (f"(int64_t)s{values[arg].index}" for arg in value.args[1:])
        row = f"kw_row(in{values[value.args[0]].index}[v{value.args[0]} + l], {count})"
        more = f"d = d + kw_load<T>(in{value.index} + {row} * C + c, n);"
        part = f"V d{{}}; for (int64_t l = e; l < e + 32 && l < {length}; ++l) {more}"
        return (
            f"V v{position}{{}}; for (int64_t e = 0; e < {length}; e += 32) {{ {part} v{position} = v{position} + d; }}"
        )

    def _after(self) -> None:
        """Combine the partial results in the order of the blocks, then what follows from them."""
        w = self.w
        for position in self.totals:
            w.add(f"double sum{position} = {self.total_start(position)};")
            add = self.total_add(position, f"part{position}[block]")
            w.add(f"for (int64_t block = 0; block < blocks; ++block) {add}")
            w.add(f"free(part{position});")
        for position, value in enumerate(self.region.values):
            if value.kind != TOTAL:
                continue
            what = f"kw_splat((E)sum{position})" if position in self.totals else self.rounded(position)
            what = what or expression(self.region, position)
            w.add(f"const {declared(value)} v{position} = {what};")
        for slot, position in enumerate(self.region.outputs):
            if self.region.values[position].kind == TOTAL:
                w.add(f"*out{slot} = v{position}[0];")
