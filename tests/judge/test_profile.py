# SPDX-License-Identifier: Apache-2.0
"""Facts about one candidate: what is read from disassembly, traces and counter tables, and one whole profile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernelwright.candidate import Candidate
from kernelwright.judge import profile as profiling
from kernelwright.judge.bench import Bench
from kernelwright.judge.build import build
from kernelwright.judge.profile import binary, counters, job, occupancy, operators, perf, replay, sass, traces
from kernelwright.judge.profile.loops import weights
from kernelwright.machine import Fact, Machine
from tests.judge.plain_tasks import task

OBJECT = """
0000000000001200 <scale._omp_fn.0>:
    1200:	vmulss %xmm0,%xmm1,%xmm1
    1204:	vmulps %zmm1,%zmm2,%zmm2
    120a:	vdivps %zmm1,%zmm2,%zmm2
    1210:	call   1030 <expf@plt>
    1215:	jne    1204 <scale._omp_fn.0+0x4>
    1217:	ret
0000000000001300 <register_tm_clones>:
    1300:	vmulss %xmm0,%xmm1,%xmm1
"""
CODE = """
		Function : _Z4copyPfPKf
        /*0000*/                   LDC R1, c[0x0][0x28] ;           /* 0x00000a00ff017b82 */
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ; /* 0x00000a00ff017b82 */
        /*0020*/                   STL [R1+0x8], R4 ;               /* 0x00000a00ff017b82 */
        /*0030*/                   HMMA.16816.F32 R4, R4, R5, R6 ;  /* 0x00000a00ff017b82 */
        /*0040*/               @P0 BRA 0x20 ;                      /* 0x00000a00ff017b82 */
        /*0050*/                   BRA 0x50;                        /* 0x00000a00ff017b82 */
"""
USAGE = " Function _Z4copyPfPKf:\n  REG:40 STACK:96 SHARED:0 LOCAL:0 CONSTANT[0]:536\n"


def test_instructions_in_a_loop_weigh_more_and_what_is_beside_it_is_left_out() -> None:
    """A loop of one packed product, one packed division and one library call; the scalar product before it is what is
    left over of the vectors, and the runtime's is nobody's."""
    found = binary.summary(binary.counts(OBJECT))
    expected = {"packed_instructions": 16.0, "floating_instructions": 16.0, "widest_bits": 512.0,
                "gather_instructions": 0.0, "division_instructions": 8.0, "math_calls": 8.0}  # fmt: skip
    assert expected == found


def test_a_rare_block_behind_the_rest_makes_no_loop_and_filling_no_entry() -> None:
    """A vector loop in a loop over rows; behind them what is seldom needed, in scalar code, whose jump back would span
    the whole. The bytes that fill up to an aligned address are entered by nothing."""
    code = """
0000000000001200 <rows>:
    1200:	jmp    1210 <rows+0x10>
    1208:	nopw   0x0(%rax,%rax,1)
    1210:	je     1240 <rows+0x40>
    1214:	vaddps (%rdi,%rcx,4),%zmm1,%zmm2
    121a:	jne    1214 <rows+0x14>
    1220:	vaddss %xmm0,%xmm1,%xmm1
    1228:	jne    1210 <rows+0x10>
    1230:	ret
    1240:	vmulss %xmm0,%xmm1,%xmm1
    1246:	vmulss %xmm0,%xmm1,%xmm1
    124c:	jmp    1220 <rows+0x20>
"""
    body = binary.functions(code)["rows"]
    assert [1, 1, 8, 64, 64, 8, 8, 1, 8, 8, 8] == weights(body)
    found = binary.summary(binary.counts(code))
    assert (64.0, 64.0, 512.0) == tuple(found[name] for name in ("packed_instructions", "floating_instructions",
                                                                 "widest_bits"))  # fmt: skip


def test_a_program_that_only_selects_or_copies_has_vectors_too() -> None:
    """Comparisons are arithmetic, packed or not; where there is none at all, the moves in loops say how wide it is."""
    select, copy = (
        f"""
0000000000001200 <select>:
    1200:	{what}
    1208:	vmovups %zmm0,(%rdi,%rcx,4)
    120e:	jne    1200 <select>
    1214:	ret
"""
        for what in ("vcmpltps (%rsi,%rcx,4),%zmm1,%k1", "vmovups (%rsi,%rcx,4),%zmm0")
    )
    expected = [(8.0, 8.0, 512.0), (0.0, 0.0, 512.0)]
    names = ("packed_instructions", "floating_instructions", "widest_bits")
    assert expected == [tuple(binary.summary(binary.counts(code))[name] for name in names) for code in (select, copy)]
    scalar = binary.summary(binary.counts(select.replace("vcmpltps", "vucomiss").replace("%zmm", "%xmm")))
    assert (0.0, 8.0, 0.0) == tuple(scalar[name] for name in names)


def test_lanes_loaded_one_by_one_are_gathers_too() -> None:
    """Tuned for processors with slow gathers, a compiler fills vectors by insertions; one from a register is none."""
    code = """
0000000000001200 <turned>:
    1200:	vinsertps $0x10,(%rdi,%rcx,4),%xmm0,%xmm0
    1208:	vinsertps $0x10,%xmm1,%xmm0,%xmm0
    120e:	vaddps %xmm0,%xmm2,%xmm2
    1212:	jne    1200 <turned>
"""
    assert 8.0 == binary.summary(binary.counts(code))["gather_instructions"]


def test_machine_code_of_a_kernel_is_counted_by_kind() -> None:
    """Wide masked loads, spills addressed by the stack pointer, tensor instructions, and no loop that ends a kernel."""
    (kernel,) = sass.kernels(USAGE, CODE).values()
    picked = {name: kernel[name] for name in ("registers", "spill_bytes", "wide_loads", "predicated_loads",
              "looped_loads", "local_instructions", "tensor_instructions", "instructions")}  # fmt: skip
    expected = {"registers": 40.0, "spill_bytes": 96.0, "wide_loads": 1.0, "predicated_loads": 1.0,
                "looped_loads": 0.0, "local_instructions": 8.0, "tensor_instructions": 8.0,
                "instructions": 26.0}  # fmt: skip
    assert expected == picked


@pytest.mark.parametrize(
    ("name", "expected"),
    [("_Z4copyPfPKf", "copy"), ("void copy<4>(float*)", "copy"), ("_ZN2at6native5widenEv", "widen"), ("rows", "rows")],
)
def test_a_kernel_is_known_by_its_identifier(name: str, expected: str) -> None:
    """Mangled, demangled and plain names meet."""
    assert expected == sass.plain(name)


def test_variants_that_did_not_run_are_no_part_of_the_program() -> None:
    """A tuner compiled three: the launch had 40 registers, as two of them have, and the third spills."""
    one = {"instructions": 100.0, "spill_bytes": 0.0, "registers": 40.0}
    two = {"instructions": 300.0, "spill_bytes": 0.0, "registers": 40.0}
    unused = {"instructions": 500.0, "spill_bytes": 512.0, "registers": 255.0}
    found = {"k": [one, unused, two]}
    assert {"k": {"instructions": 200.0, "spill_bytes": 0.0, "registers": 40.0}} == sass.chosen(found, {"k": 40.0})
    assert {"k": unused} == sass.chosen(found, {"k": 255.0})
    assert 300.0 == sass.chosen(found, {})["k"]["instructions"]


def test_a_profile_leaves_out_what_an_earlier_one_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of other shapes lie in the folder before; the replay finds none of them."""
    workshop = tmp_path / "own"
    (workshop / "triton" / "digest").mkdir(parents=True)
    (workshop / "triton" / "digest" / "k.cubin").write_bytes(b"of an earlier profile")
    subject = SimpleNamespace(workshop=workshop)

    def replay(*_: object) -> None:
        raise InterruptedError(f"{len(list(workshop.rglob('*.cubin')))} cubins")

    monkeypatch.setattr(profiling, "_request", lambda _: {})
    monkeypatch.setattr(profiling, "_replay", replay)
    with pytest.raises(InterruptedError, match="^0 cubins"):
        profiling.profile(cast(Any, subject), machine())


def test_occupancy_is_bound_by_the_scarcest_resource() -> None:
    """132 KiB of shared memory: one block of 4 warps of 64; 128 registers: 16 warps; whole blocks only."""
    processor = occupancy.Processor(registers=65536, shared_bytes=233472, threads=2048)
    found = occupancy.limits(processor, registers=128, shared_bytes=132 << 10, threads=128)
    assert (0.25, 0.0625, 1.0, 0.0625) == tuple(found.values())


def test_a_trace_gives_kernels_busy_time_and_waits_a_call() -> None:
    """Overlapping kernels count once; events outside the marked calls do not count."""

    def event(name: str, cat: str, start: float, length: float, **more: object) -> dict[str, object]:
        return {"ph": "X", "name": name, "cat": cat, "ts": start, "dur": length, "args": more}

    events = [
        event(traces.MARK, "user_annotation", 100.0, 50.0),
        event("k", "kernel", 20.0, 9.0),
        event("k", "kernel", 110.0, 10.0, grid=[4, 2, 1], block=[32, 1, 1]),
        event("void direct_copy_kernel_cuda", "kernel", 115.0, 10.0, grid=[1, 1, 1], block=[64, 1, 1]),
        event("cudaStreamSynchronize", "cuda_runtime", 130.0, 5.0),
        event("cudaDeviceSynchronize", "cuda_runtime", 160.0, 5.0),
    ]  # fmt: skip
    facts, launches = traces.read({"traceEvents": events})
    assert (2.0, 15.0, 1.0, 10.0) == tuple(
        facts[name] for name in ("kernels", "busy_us", "synchronisations", "layout_copy_us")
    )
    assert ("k", 8.0, 32.0) == (launches[0].name, launches[0].blocks, launches[0].threads)


def test_counters_become_the_facts_of_the_rules() -> None:
    """Shares of stalls, conflicts among wavefronts, lanes, and a note in place of a table."""
    heads = ["ID", "Kernel Name", counters.TIME, counters.SINGLE["bank_conflicts"][0],
             counters.SINGLE["shared_wavefronts"][0], counters.SINGLE["cycles_busiest"][0],
             counters.SINGLE["cycles_mean"][0], "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
             "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"]  # fmt: skip
    lines = ['"' + '","'.join(row) + '"' for row in (heads, ["", "", "ns", "", "", "", "", "", ""],
             ["0", "copy(float*)", "2,000", "75", "100", "30", "10", "1", "3"])]  # fmt: skip
    rows = counters.rows("==PROF== Connected\n" + "\n".join(lines))
    found = counters.facts(rows)
    picked = [found[name] for name in ("bank_conflict_share", "busiest_over_mean", "stall_memory", "stall_dependency")]
    assert [0.75, 3.0, 0.75, 0.25] == picked
    assert [] == counters.rows("==ERROR== ERR_NVGPUCTRPERM")
    assert "==ERROR== ERR_NVGPUCTRPERM" == counters.refusal("==WARNING== clocks\n==ERROR== ERR_NVGPUCTRPERM")


def test_the_cache_is_as_busy_as_its_busiest_part() -> None:
    """What leaves it for the multiprocessors or what goes on in it; either counter may be missing."""
    port, cache = (counters.SINGLE[name][0] for name in ("cache_port", "cache_throughput"))
    for row, expected in (({port: "96", cache: "57"}, 0.96), ({port: "10", cache: "57"}, 0.57), ({port: "96"}, 0.96)):
        found = counters.facts([{counters.TIME: "1000", **row}])
        assert (expected, False) == (pytest.approx(found["cache_throughput"]), "cache_port" in found)


TABLE = """# started on Fri
88.81,msec,task-clock:u,88808065,100.00,0.013,CPUs utilized
2000000,,cycles:u,88808065,100.00,,
3000000,,instructions:u,88808065,100.00,1.50,insn per cycle
<not supported>,,cache-misses:u,0,100.00,,
15000,,branch-misses:u,88808065,100.00,,
"""


def test_perf_s_table_becomes_facts_and_what_it_refused_is_named() -> None:
    """Instructions a cycle and a call, misses in a thousand instructions; an unsupported event gives no fact."""
    counts, refused = perf.counts(TABLE)
    expected = {"instructions_per_cycle": 1.5, "instructions_a_call": 3e5, "branch_misses_per_thousand": 5.0}
    assert (expected, ["cache-misses not supported"]) == (perf.facts(counts, 10.0), refused)
    assert {} == perf.facts({"task-clock": 3.0}, 10.0)


def test_counters_of_a_processor_are_facts_or_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without perf the reason is that; with it, there are facts or the events that this machine refuses."""
    made = task("x * 2.0", "[torch.rand(64, 64)]")
    text = made.reference.replace("class Model(", "class ModelNew(")
    given = Candidate(task=made.digest(), language="torch", entry="new.py::ModelNew", sources=(("new.py", text),),
                      proposer="test")  # fmt: skip
    folder = build(given, "cpu", tmp_path / "built")
    bench = Bench(made, "cpu")
    if perf.tool() is not None:
        found = job.run(bench, given, folder, machine(), tmp_path / "own", 1, count=True)
        assert "instructions_per_cycle" in found["facts"] or any("that perf does not" in n for n in found["notes"])
    monkeypatch.setattr(perf, "tool", lambda: None)
    without = job.run(bench, given, folder, machine(), tmp_path / "own", 1, count=True)
    assert "hardware counters: perf is not installed" in without["notes"]
    bench.close()


def machine() -> Machine:
    """A device of which three facts are known."""
    values = (("bandwidth.copy.dram_GBps", 20.0), ("latency.launch_us", 1.0), ("latency.page_fault_us", 0.25))
    facts = tuple(Fact(name=name, value=value, unit="", spread=0.0, note="") for name, value in values)
    return Machine(device="cpu", name="test", fingerprint="0", versions=(), facts=facts, measured_at=0.0)


def test_a_candidate_is_profiled_in_the_sandbox_and_keyed_by_its_digest(tmp_path: Path) -> None:
    """Run-time facts of a plain program; what does not exist for it is a note."""
    made = task("x * 2.0", "[torch.rand(64, 64)]")
    text = made.reference.replace("class Model(", "class ModelNew(").replace("x * 2.0", "x + x")
    given = Candidate(task=made.digest(), language="torch", entry="new.py::ModelNew", sources=(("new.py", text),),
                      proposer="test")  # fmt: skip
    folder = build(given, "cpu", tmp_path / "built")
    bench = Bench(made, "cpu")
    found = job.run(bench, given, folder, machine(), tmp_path / "own", 1, count=False)
    assert (given.digest(), 1.0, 0.25) == (found["candidate"], found["facts"]["operators"], found["facts"]["fault_us"])
    assert found["facts"]["needed_bytes"] == 2 * 64 * 64 * 4
    assert any("no compiled object" in note for note in found["notes"])
    bench.close()


def test_an_operator_that_met_fresh_pages_is_as_quick_as_where_it_met_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of five runs did on a virtual machine, which made 36 ms of 1.1."""
    bench = Bench(task("torch.relu(x)", "[torch.rand(8, 8)]"), "cpu")
    seconds = iter([0.036, 0.034, 0.0011, 0.038, 0.0012])
    monkeypatch.setattr(operators.measure, "stopwatch", lambda action: next(seconds))
    assert {("relu", ((8, 8),)): pytest.approx(1100.0)} == operators.times(bench)
    bench.close()


def test_operators_of_the_reference_are_timed_where_they_stand() -> None:
    """Each is found by name and shapes; views are not."""
    bench = Bench(task("torch.relu(x.t() @ x)", "[torch.rand(16, 8)]"), "cpu")
    found = operators.times(bench)
    assert {("mm", ((8, 16), (16, 8))), ("relu", ((8, 8),))} == set(found)
    plain = {"rows": [{"operator": {"name": "relu", "shapes": [[8, 8]]}}, {"operator": {"name": "x", "shapes": []}}]}
    attached = operators.attach(plain, {("relu", ((8, 8),)): 4.0})
    assert ([4.0, None], [1.0, None]) == (
        [r["measured_us"] for r in attached["rows"]],
        [r["share"] for r in attached["rows"]],
    )
    bench.close()


def test_threads_at_work_together_are_counted_by_their_own_time() -> None:
    """Two threads of equal work are two whatever the wall says; one with three eighths of the other's is 1.375."""
    before = {"1": 100, "2": 50}
    assert (2.0, 1.375) == (
        replay._together(before, {"1": 1100, "2": 1050}),
        replay._together(before, {"1": 1700, "2": 650}),
    )
    assert (1.0, 0.0) == (replay._together({}, {"1": 7, "2": 0}), replay._together({}, {}))
