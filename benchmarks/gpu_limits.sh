#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What of the limits can be measured on a CUDA device alone, in sections of less than three minutes each.
#
#   COMMIT=<commit of this tree> bash benchmarks/gpu_limits.sh SECTION...        results go to ${OUT:-/tmp/limits}
#
#   machine   facts of the device, timed, and its page                  power     watts of torch.mm over shapes
#   tiles     time and watts of tile choices                            peer      two devices: their bandwidth
#   planted   the first set at its first sizes      again, third   at its others      unseen   the held-out set
#   gaps      best times of 68 programs             explain   the limiter of each (after gaps, or goes on with the file GAPS)
#   memory    predicted and measured peak memory of modules
#   cost      energy line of an optimize run; counters inside the sandbox              long      long rows by groups of blocks
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

# The kernels of one set at one of its sizes: $1 names the file, the rest are options.
provoked() {
    local file=$1
    shift
    known
    timeout 60 $PY -m benchmarks.planted.run cuda - --cache "$KEPT/planted" --workers 14 --build "$@" 2>&1 | tail -5
    timeout 178 $PY -m benchmarks.planted.run cuda "$OUT/$file.json" --machine "$MACHINE" --workers 8 \
        --cache "$KEPT/planted" --seconds 125 "$@" 2>&1 | grep -v '^  [^ ]' | cut -c1-240
}
planted() { provoked planted --sizes inputs; }
again() { provoked planted_again --sizes again; }
third() { provoked planted_third --sizes third; }
unseen() { provoked planted_unseen --set unseen --sizes inputs; }

gaps() {
    known
    [ -s "$KEPT/gaps.json" ] && cp "$KEPT/gaps.json" "$OUT/gaps.json"
    timeout 100 $PY -m benchmarks.gaps cuda "$OUT/gaps.json" "$MACHINE" --cache "$KEPT/gaps" --part compile \
        2>&1 | tail -15
    timeout 100 $PY -m benchmarks.gaps cuda "$OUT/gaps.json" "$MACHINE" --cache "$KEPT/gaps" --part measure --seconds 75 \
        2>&1 | tail -75 | cut -c1-160
    cp "$OUT/gaps.json" "$KEPT/gaps.json"
}

explain() {
    known
    [ -s "$KEPT/gaps.json" ] || cp "${GAPS:?a gaps.json to go on with, or the section gaps before}" "$KEPT/gaps.json" || return
    cp "$KEPT/gaps.json" "$OUT/gaps.json"
    timeout 178 $PY -m benchmarks.gaps cuda "$OUT/gaps.json" "$MACHINE" --cache "$KEPT/gaps" --part explain \
        --seconds 130 2>&1 | cut -c1-200
    cp "$OUT/gaps.json" "$KEPT/gaps.json"
}

memory() { timeout 178 $PY -m benchmarks.memory cuda "$OUT/memory.json" --at-once 8 2>&1 | cut -c1-200; }

cost() {
    known
    timeout 178 $PY -m benchmarks.gpu_cost "$OUT" --device "${DEVICE:-cuda:0}" --budget 20s 2>&1 | cut -c1-400
}

peer() {
    nvidia-smi topo -m 2>/dev/null | head -12
    $PY - "$OUT/peer.json" <<'PYTHON'
import json, os, sys, time
import torch
from kernelwright import wire
from kernelwright.judge.calibration import cuda
found = cuda._peers("cuda:0")
for fact in found:
    print(f"{fact.name}: {fact.value} {fact.unit}, spread {fact.spread:.3f}, {fact.note}")
about = {"command": ["bash", "benchmarks/gpu_limits.sh", "peer"], "commit": os.environ["COMMIT"], "when": time.time(),
         "device": torch.cuda.get_device_properties(0).name, "devices": torch.cuda.device_count(),
         "torch": torch.__version__, "facts": [wire.to_data(fact) for fact in found]}
print(about["devices"], "devices of", about["device"])
json.dump(about, open(sys.argv[1], "w"), indent=1)
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
