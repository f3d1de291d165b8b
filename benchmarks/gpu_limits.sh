#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What of the limits can be measured on a CUDA device alone, in sections of less than three minutes each.
#
#   COMMIT=<commit of this tree> bash benchmarks/gpu_limits.sh SECTION...        results go to ${OUT:-/tmp/limits}
#
#   machine   facts of the device, timed, and its page                  power     watts of torch.mm over shapes
#   tiles     time and watts of tile choices                            planted   the programs of planted/unseen
#   gaps      best times of 68 programs        explain  the limiter of each (after gaps)
#   cost      energy line of an optimize run; counters inside the sandbox          peer   two devices: their bandwidth
#   long      long rows by groups of blocks
cd "$(dirname "$0")/.." || exit 1
export PYTHONPATH=$PWD/src:$PWD KERNELWRIGHT_HOME=${KERNELWRIGHT_HOME:-/tmp/limits-home} COMMIT=${COMMIT:-unknown}
OUT=${OUT:-/tmp/limits} KEPT=/tmp/limits-kept PY=$(command -v python3 || command -v python)
[ -x .venv/bin/python ] && PY=.venv/bin/python
mkdir -p "$OUT" "$KEPT"
MACHINE=$KEPT/machine.json

machine() {
    local start=$SECONDS
    $PY - "$MACHINE" "$OUT/machine.html" <<'PYTHON' || return 1
import sys, time
import kernelwright
from kernelwright import wire
began = time.time()
found = kernelwright.measure_machine("cuda:0", html=sys.argv[2])
open(sys.argv[1], "w").write(wire.dumps(found))
print(f"measured {len(found.facts)} facts of {found.name} in {time.time() - began:.0f} s, process start included")
for fact in found.facts:
    if fact.name.startswith(("power", "energy", "bandwidth.copy.dram", "bandwidth.read_", "bandwidth.peer", "rate",
                             "bandwidth.distributed", "peak.gemm")):
        print(f"  {fact.name} {fact.value} {fact.unit} spread {fact.spread:.3f} {fact.note}")
PYTHON
    cp "$MACHINE" "$OUT/machine.json"
    grep -c "<path" "$OUT/machine.html" | sed 's/^/paths drawn on the page: /'
    echo "section took $((SECONDS - start)) s"
}

known() { [ -s "$MACHINE" ] || machine; }

power() { timeout 178 $PY -m benchmarks.gemm_measure "$OUT/gemm_power.json" 150 power; }

tiles() { timeout 178 $PY -m benchmarks.gemm_tiles "$OUT/gemm_tiles_power.json" 165 power; }

planted() {
    known
    timeout 178 $PY -m benchmarks.planted.run cuda "$OUT/planted_unseen.json" --set unseen --machine "$MACHINE" --workers 3 \
        --cache "$KEPT/planted" --sizes inputs 2>&1 | cut -c1-300
}

gaps() {
    known
    [ -s "$KEPT/gaps.json" ] && cp "$KEPT/gaps.json" "$OUT/gaps.json"
    timeout 100 $PY -m benchmarks.gaps cuda "$OUT/gaps.json" "$MACHINE" --cache "$KEPT/gaps" --part compile \
        2>&1 | tail -15
    timeout 100 $PY -m benchmarks.gaps cuda "$OUT/gaps.json" "$MACHINE" --cache "$KEPT/gaps" --part measure --seconds 75 \
        2>&1 | cut -c1-200
    cp "$OUT/gaps.json" "$KEPT/gaps.json"
}

explain() {
    known
    cp "$KEPT/gaps.json" "$OUT/gaps.json"
    timeout 178 $PY -m benchmarks.gaps cuda "$OUT/gaps.json" "$MACHINE" --cache "$KEPT/gaps" --part explain \
        --seconds 150 2>&1 | cut -c1-200
    cp "$OUT/gaps.json" "$KEPT/gaps.json"
}

cost() {
    known
    $PY -m kernelwright.cli optimize tasks/normalisation/rmsnorm --device cuda:0 --budget 45s --out "$KEPT/run-$$" 2>&1 |
        tail -6
    [ -s "$KEPT/run-$$/proof.json" ] && cp "$KEPT/run-$$/proof.json" "$OUT/proof.json"
    $PY - "$KEPT/run-$$" <<'PYTHON'
import json, pathlib, sys
run = pathlib.Path(sys.argv[1])
proof, report = run / "proof.json", (run / "report.html").read_text()
said = json.loads(proof.read_text()) if proof.exists() else {}  # nothing faster: nothing is proved
print("energy in proof.json:", json.dumps({k: v for k, v in said.items() if "energy" in k or "cost" in k})[:600])
at = report.find("kWh")
print("kWh in report.html:", report[max(0, at - 200) : at + 200].replace("\n", " ") if at >= 0 else "NOT FOUND")
PYTHON
    cat > "$KEPT/turn.py" <<'PYTHON'
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).contiguous()


def get_inputs():
    return [torch.rand(16384, 64, 64)]


def get_init_inputs():
    return []
PYTHON
    $PY -m kernelwright.cli profile benchmarks/planted/unseen/cuda/transpose_tile.cu --task "$KEPT/turn.py" \
        --device cuda:0 2>&1 | cut -c1-400
}

peer() {
    $PY - <<'PYTHON'
import torch
from kernelwright.judge.calibration import cuda
print(torch.cuda.device_count(), "devices")
for fact in cuda._peers("cuda:0"):
    print(fact)
PYTHON
}

long() {
    known
    timeout 150 $PY -m benchmarks.long_rows "$OUT/long_rows.json" "$MACHINE" 2>&1 | tail -30
}

for section in "$@"; do
    echo "== $section"
    $section
done
