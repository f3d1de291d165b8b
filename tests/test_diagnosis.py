# SPDX-License-Identifier: Apache-2.0
"""Rules as data: each has facts that provoke it and facts that do not; the page says what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.diagnosis import diagnose, load_rules
from kernelwright.diagnosis.observed import observed
from kernelwright.errors import BadCommand

QUIET = {
    "host_us": 50.0, "busy_us": 100.0, "kernels": 1.0, "launch_us": 3.0, "synchronisations": 0.0, "synchronise_us": 5.0,
    "first_us": 500.0, "spill_bytes": 0.0, "local_instructions": 0.0, "memory_instructions": 100.0, "registers": 32.0,
    "tensor_instructions": 64.0, "tensor_eligible": 1.0, "matmul_us": 60.0, "dtype_bits": 16.0, "instructions": 1000.0,
    "float64_instructions": 0.0, "task_float64": 0.0, "occupancy_by_registers": 1.0, "occupancy_by_shared": 1.0,
    "shared_bytes": 0.0, "blocks": 1000.0, "processors": 132.0, "useful_lanes": 1.0, "busiest_over_mean": 1.0,
    "sectors_per_request": 4.0, "bytes_used_per_sector": 32.0, "layout_copy_us": 0.0, "bank_conflict_share": 0.0,
    "atomics": 0.0, "stall_atomics": 0.0, "uniform_branches": 1.0, "active_lanes": 1.0, "global_loads": 10.0,
    "wide_loads": 10.0, "device_bytes": 1e6, "needed_bytes": 1e6, "stall_barrier": 0.0, "stall_dependency": 0.1,
    "issue_active": 0.6, "stall_memory": 0.2, "memory_throughput": 0.7, "packed_instructions": 90.0,
    "floating_instructions": 100.0, "widest_bits": 512.0, "machine_bits": 512.0, "busy_threads": 2.0, "threads": 2.0,
    "gather_instructions": 0.0, "page_faults": 0.0, "fault_us": 0.25, "division_instructions": 0.0, "math_calls": 0.0,
    "load_bytes": 16.0, "passes": 1.0, "memory_bound": 1.0, "cache_bytes": 4e5, "predicated_loads": 10.0,
    "loads_useful": 1.0, "operators": 1.0, "kernel_launch_us": 3.0, "lanes_filled": 1.0,
    "written_us": 55.0, "unfused_us": 60.0, "launch_bound": 0.0,
    "occupancy": 1.0, "load_us": 700.0, "instructions_per_cycle": 1.5,
    "cache_misses_per_thousand": 1.0, "branch_misses_per_thousand": 1.0, "cache_throughput": 0.4, "pipe_fma": 0.4,
    "pipe_alu": 0.3, "pipe_xu": 0.1, "pipe_fp64": 0.0, "pipe_lsu": 0.2, "pipe_tensor": 0.3,
}  # fmt: skip
PLAIN = {"tensor_instructions": 0.0, "tensor_eligible": 0.0, "matmul_us": 0.0}
"""A program that has no matrix product."""
PROVOKED = {
    "host-bound": {"host_us": 95.0, "busy_us": 40.0},
    "many-small-launches": {"kernels": 30.0, "busy_us": 60.0, "host_us": 70.0},
    "synchronisation": {"synchronisations": 4.0}, "cold-start": {"first_us": 9e5}, "late-compilation": {"load_us": 9e6},
    "spills": {"spill_bytes": 96.0, "local_instructions": 40.0}, "local-memory": {"local_instructions": 40.0},
    "no-tensor-cores": {"tensor_instructions": 0.0, "matmul_us": 90.0},
    "accidental-float64": {"float64_instructions": 100.0},
    "occupancy-registers": {"occupancy_by_registers": 0.12, "written_us": 30.0, "issue_active": 0.3} | PLAIN,
    "occupancy-shared": {"occupancy_by_shared": 0.06, "written_us": 30.0, "issue_active": 0.3} | PLAIN,
    "tiny-grid": {"blocks": 8.0}, "partial-tiles": {"useful_lanes": 0.5}, "load-imbalance": {"busiest_over_mean": 2.0},
    "strided-access": {"sectors_per_request": 32.0, "bytes_used_per_sector": 4.0},
    "wrong-layout": {"layout_copy_us": 40.0}, "bank-conflicts": {"bank_conflict_share": 0.7},
    "serialised-atomics": {"atomics": 10.0, "stall_atomics": 0.8},
    "divergence": {"active_lanes": 0.4}, "unvectorised-loads": {"wide_loads": 0.0} | PLAIN,
    "redundant-reads": {"device_bytes": 3e6} | PLAIN, "barriers": {"stall_barrier": 0.6},
    "dependency-chain": {"stall_dependency": 0.8, "issue_active": 0.1},
    "memory-latency": {"stall_memory": 0.8, "memory_throughput": 0.3}, "bandwidth": {"memory_throughput": 0.95},
    "cpu-unvectorised": {"packed_instructions": 0.0}, "cpu-narrow-vectors": {"widest_bits": 128.0},
    "cpu-one-thread": {"busy_threads": 1.0}, "cpu-imbalance": {"busy_threads": 1.4},
    "narrow-loads": {"load_bytes": 1.0} | PLAIN,
    "several-passes": {"passes": 3.0}, "masked-tiles": {"loads_useful": 0.3},
    "cpu-small-operators": {"operators": 640.0, "launch_us": 0.5},
    "cpu-gathers": {"gather_instructions": 20.0}, "cpu-allocation": {"page_faults": 300.0},
    "cpu-cache-misses": {"cache_misses_per_thousand": 30.0, "instructions_per_cycle": 0.4},
    "cpu-branches": {"branch_misses_per_thousand": 20.0},
    "cpu-division": {"division_instructions": 30.0}, "cpu-calls": {"math_calls": 3.0},
    "small-call": {"launch_bound": 1.0, "launch_us": 8.0},
    "instruction-issue": {"issue_active": 0.9}, "arithmetic": {"written_us": 90.0},
    "excess-traffic": {"device_bytes": 1.4e6, "memory_throughput": 0.79} | PLAIN,
    "cache-bandwidth": {"cache_throughput": 0.9, "memory_throughput": 0.2}, "special-functions": {"pipe_xu": 0.9},
    "busy-pipe": {"pipe_alu": 0.9}, "tensor-pipe": {"pipe_tensor": 0.8},
    "cpu-intermediates": {"operators": 3.0, "unfused_us": 90.0}, "intermediates": {"kernels": 3.0, "unfused_us": 90.0},
}  # fmt: skip
NAMES = [rule.name for rule in load_rules()]


def found(facts: dict[str, float], name: str, bound_us: float = 50.0) -> list[str]:
    """Names of the rules that speak about these facts on the rule's own device."""
    device = "cpu" if name.startswith("cpu") else "cuda:0"
    page = diagnose(facts, device=device, time_us=100.0, bound_us=bound_us)
    return [finding.rule for finding in page.findings]


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_is_provoked_by_its_limiter_and_silent_without_it(name: str) -> None:
    """The planted facts make it speak first; the quiet ones leave every rule silent."""
    assert [] == found(QUIET, name)
    assert name == found(QUIET | PROVOKED[name], name)[0]


def test_a_host_that_is_busy_beside_a_busy_device_holds_nothing() -> None:
    """Profiled one by one, a call takes the host longer than the device; raced, calls queue and the device is busy all
    of the time: a product of bfloat16 on an H200, 14.8 us a call, of which the device works 14.9, the host 20.6."""
    alone = {"host_us": 138.0, "busy_us": 100.5, "pipe_tensor": 0.7}
    assert ["tensor-pipe"] == found(QUIET | alone, "host-bound")


def test_a_rule_whose_facts_were_not_measured_is_silent_and_says_so() -> None:
    """No counters: rules that need them are silent, and the page lists what is missing."""
    page = diagnose({"blocks": 4.0, "processors": 132.0}, device="cuda", time_us=10.0, bound_us=None)
    assert (["tiny-grid"], True) == ([f.rule for f in page.findings], "stall_barrier" in page.unknown)
    assert "Not measured here" in page.text()


def test_the_page_names_gap_limiter_evidence_and_edit() -> None:
    """A person reads the gap in microseconds, what holds the program, why, and what to do."""
    text = diagnose(QUIET | {"bank_conflict_share": 0.5}, device="cuda", time_us=100.0, bound_us=40.0).text()
    for part in ("gap 60 us", "Limiter: bank conflicts", "50% of the shared-memory wavefronts", "Pad rows", "2.00x"):
        assert part in text


def test_without_findings_the_bound_names_the_limiter() -> None:
    """Nothing wrong found: the bound's own limiter stands."""
    assert "memory" == diagnose({}, device="cuda", time_us=100.0, bound_us=90.0).limiter
    assert "not named" in diagnose({}, device="cuda", time_us=100.0, bound_us=30.0).limiter


def test_where_no_limiter_is_named_the_page_says_what_was_looked_for_and_what_would_tell() -> None:
    """An ordinary vectorised kernel far from its bound, on a machine without counters; with them nothing is missing."""
    known = {
        "packed_instructions": 90.0, "floating_instructions": 100.0, "math_calls": 0.0, "widest_bits": 512.0,
        "machine_bits": 512.0, "gather_instructions": 0.0, "division_instructions": 5.0, "threads": 2.0,
        "busy_threads": 1.9, "operators": 2.0, "page_faults": 2.0, "fault_us": 1.0,
    }  # fmt: skip
    text = diagnose(known, device="cpu", time_us=1000.0, bound_us=35.0).text()
    sought = next(line for line in text.splitlines() if line.startswith("Looked for, and none or too little found:"))
    assert all(word in sought for word in ("unvectorised", "one thread", "allocation", "narrow vectors", "gathers"))
    missing = next(line for line in text.splitlines() if line.startswith("Not looked at"))
    assert "cache misses, stalls on earlier results, mispredicted branches, strides" in missing
    assert "strid" not in sought and "scalar" not in missing  # a transposition has no gathers and strides all the same
    counters = {"cache_misses_per_thousand": 1.0, "instructions_per_cycle": 2.0, "branch_misses_per_thousand": 0.1}
    assert "Not looked at" not in diagnose(known | counters, device="cpu", time_us=1000.0, bound_us=35.0).text()
    slow = known | {"busy_threads": 1.0}
    assert "Looked for" not in diagnose(slow, device="cpu", time_us=1000.0, bound_us=35.0).text()


@pytest.mark.parametrize("symptom", ["barriers", "bank-conflicts", "redundant-reads"])
def test_stalls_and_conflicts_beside_a_busy_unit_are_symptoms(symptom: str) -> None:
    """A library's product waits at barriers and moves tiles twice while its matrix unit is busy: that is its limit."""
    facts = QUIET | PROVOKED[symptom] | {"memory_throughput": 0.2}
    assert symptom in found(facts, symptom)
    busy = found(facts | {"pipe_tensor": 0.71}, symptom)
    assert symptom not in busy and "tensor-pipe" in busy


def test_rules_are_arithmetic_only(tmp_path: Path) -> None:
    """A rule file cannot run code."""
    path = tmp_path / "rules.toml"
    row = {"name": "x", "limiter": "l", "when": "().__class__", "share": "0", "model": "", "evidence": "", "edit": ""}
    path.write_text("[[rule]]\n" + "".join(f'{key} = "{value}"\n' for key, value in row.items()))
    with pytest.raises(BadCommand, match="Attribute"):
        load_rules(path)


def test_what_goes_on_inside_kernels_saves_no_more_than_the_time_they_run() -> None:
    """A grid of one block in a program that is the host's fault: the share is of the device's time only."""
    facts = QUIET | {"blocks": 1.0, "busy_us": 10.0, "host_us": 100.0}
    page = diagnose(facts, device="cuda", time_us=100.0, bound_us=5.0)
    shares = {finding.rule: round(finding.share, 3) for finding in page.findings}
    assert (0.098, "host") == (shares["tiny-grid"], page.limiter)


def test_a_share_of_the_device_s_time_is_made_a_share_of_the_call_once() -> None:
    """Of 100 us the device works 10, 8 of them copies: 8 % of the call. Of 100 us it works 50, 40 of them a product at
    the wrong rate: nine tenths of those 40 are 36 % of the call."""
    copies = QUIET | {"busy_us": 10.0, "host_us": 90.0, "layout_copy_us": 8.0}
    page = diagnose(copies, device="cuda", time_us=100.0, bound_us=None)
    (found,) = [finding for finding in page.findings if finding.rule == "wrong-layout"]
    assert (0.08, 1.09) == (round(found.share, 3), round(found.expected_gain, 2))
    product = QUIET | {"busy_us": 50.0, "matmul_us": 40.0, "tensor_instructions": 0.0, "tensor_eligible": 1.0}
    page = diagnose(product, device="cuda", time_us=100.0, bound_us=None)
    (found,) = [finding for finding in page.findings if finding.rule == "no-tensor-cores"]
    assert 0.36 == round(found.share, 3)


def test_the_page_says_what_changed_since_the_parent() -> None:
    """Facts of both profiles that differ, the time always, and nothing that stayed."""
    parent = {"time_us": 125.0, "registers": 64.0, "occupancy": 0.5, "kernels": 2.0}
    now = {"time_us": 124.0, "registers": 40.0, "occupancy": 0.51, "kernels": 1.0, "blocks": 9.0}
    page = diagnose(now, device="cuda", time_us=100.0, bound_us=50.0, parent=parent)
    assert [("time", 125.0, 100.0), ("kernels a call", 2.0, 1.0), ("registers a thread", 64.0, 40.0)] == [
        (change.what, change.before, change.after) for change in page.since
    ]
    assert "Since the parent: time 125 -> 100 us (-20%); kernels a call 2 -> 1 (-50%)" in page.text()


def test_a_symptom_is_silent_beside_its_cause_and_speaks_where_the_cause_is_unknown() -> None:
    """Waiting for memory with few warps resident is a matter of occupancy; without that fact it is latency."""
    stalled = QUIET | PROVOKED["memory-latency"]
    assert "memory-latency" not in found(stalled | {"occupancy": 0.1}, "memory-latency")
    unknown = {name: value for name, value in stalled.items() if name != "occupancy"}
    assert "memory-latency" in found(unknown, "memory-latency")


def test_no_share_goes_below_what_memory_allows_but_a_job_of_many_calls_may() -> None:
    """Bytes that need 90 of 100 us leave 10 % to any edit of a call; the order among edits stays that of the models."""
    facts = QUIET | PROVOKED["bank-conflicts"] | {"layout_copy_us": 40.0, "reach_us": 90.0}
    page = diagnose(facts, device="cuda", time_us=100.0, bound_us=50.0)
    assert [("bank-conflicts", 0.1), ("wrong-layout", 0.1)] == [(f.rule, round(f.share, 3)) for f in page.findings]
    slow = diagnose(QUIET | {"first_us": 4e5, "reach_us": 100.0}, device="cuda", time_us=100.0, bound_us=50.0)
    assert [("cold-start", 0.8)] == [(f.rule, round(f.share, 3)) for f in slow.findings]


def test_rules_that_know_the_bounds_alone_are_asked_last() -> None:
    """Arithmetic near its peak explains a program that no other rule explains, and no other."""
    busy = QUIET | PROVOKED["arithmetic"]
    assert ["arithmetic"] == found(busy, "arithmetic")
    assert ["strided-access"] == found(busy | PROVOKED["strided-access"], "strided-access")


def test_what_was_counted_is_said_whether_or_not_a_rule_speaks() -> None:
    """Only what was measured, in the words of the device; sentences that lack a fact are left out."""
    line = observed(QUIET | {"division_instructions": 10.0}, "cpu")
    assert "2.00 of 2 threads" in line and "10% of the floating" in line and "kernels" not in line
    assert "32 registers a thread" in observed(QUIET, "cuda:0")
    assert "vectors" in line and "vectors" not in observed(QUIET | {"widest_bits": 0.0}, "cpu")
    assert "" == observed({"page_faults": 3.0}, "cpu") == observed({}, "cuda:0")
