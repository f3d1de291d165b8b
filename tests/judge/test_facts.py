# SPDX-License-Identifier: Apache-2.0
"""What a proof says of its bound, and what is predicted of matrix products on a device."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge import facts
from kernelwright.judge.bench import Bench
from kernelwright.limits import products
from kernelwright.limits.gemm import Device
from kernelwright.machine import Fact, Machine
from kernelwright.optimize import tables
from kernelwright.task import Contract
from tests.judge.plain_tasks import task


def machine(device: str, **more: float) -> Machine:
    """A device of round numbers."""
    values = {f"peak.gemm.{dtype}_TFLOPs": 100.0 for dtype in products.RATES}
    values |= {"bandwidth.copy.dram_GBps": 4000.0, "count.processors": 132.0, **more}
    rows = tuple(Fact(name=name, value=value, unit="", spread=0.0, note="") for name, value in values.items())
    return Machine(device=device, name="x", fingerprint="f", versions=(), facts=rows, measured_at=0.0)


def test_operators_of_unknown_work_are_named_beside_the_bound() -> None:
    """A Fourier transform has no count of operations: its bytes bound it, and the proof says so; once traced, kept."""
    bench = Bench(task("torch.fft.rfft(x).real.clone()", "[torch.randn(8, 64)]"), "cpu")
    assert ["bound: _fft_r2c: no operation count, bounded by bytes alone"] == facts.bound_notes(bench)
    assert bench.traced is facts.traced_once(bench)


MASK = "(torch.rand(32, 64) < 0.75).float()"
SIZE = 32 * 64 * 4


@pytest.mark.parametrize(
    ("body", "mask", "needed", "others"),
    [
        ("x * m", MASK, SIZE, 0.75),
        ("x * m", MASK.replace("float", "long"), 2 * SIZE, 0.75),
        ("x * m", "torch.randn(32, 64)", SIZE, 1.0),
        ("x * m", "torch.randint(0, 3, (32, 64))", 2 * SIZE, 1.0),  # numbers, some of them zero
        ("x + m", MASK, SIZE, 1.0),  # nothing is multiplied
    ],
)
def test_what_a_mask_of_zeros_multiplies_need_not_be_read(body: str, mask: str, needed: int, others: float) -> None:
    """A program that skips masked rows skips no work: the bound must not refuse its time."""
    bench = Bench(task(body, f"[torch.randn(32, 64), {mask}]", args="x, m"), "cpu")
    share = (facts.traced_once(bench).input_bytes - needed) / SIZE
    assert others == share if others == 1.0 else 0.65 < share < 0.85
    assert (others < 1.0) == any("zero in" in text for text in facts.bound_notes(bench))


def test_a_plain_program_has_nothing_to_say_of_its_bound() -> None:
    """Bytes and operations are all known."""
    assert [] == facts.bound_notes(Bench(task("torch.relu(x)", "[torch.randn(8, 64)]"), "cpu"))


def test_products_are_predicted_on_a_device_and_stated_with_the_models_errors() -> None:
    """Two products of a task, in time and energy; without the power of a large one only in time; none on a CPU."""
    bench = Bench(task("(x @ y) @ y", "[torch.randn(256, 256), torch.randn(256, 256)]", args="x, y"), "cpu")
    found = facts.bounds(bench, machine("cuda:0", **{"power.gemm_W": 700.0}))
    assert found is not None
    assert (2, True) == (found["products"]["count"], 0 < found["products"]["mJ"] < 700.0 * found["products"]["us"])
    line = next(line for line in tables.limits(found).splitlines() if line.startswith("products"))
    assert f"{found['products']['time_error']:.0%} of time" in line and "of power" in line
    silent = facts.bounds(bench, machine("cuda:0"))
    assert silent is not None and silent["products"]["mJ"] is None
    plain = facts.bounds(bench, machine("cpu"))
    assert plain is not None and plain["products"] is None


def test_the_memory_of_the_reference_is_predicted_and_the_error_stated() -> None:
    """An input of 64 KiB, a result that lives while the next is made: 192 KiB at once; a branch on data has none."""
    bench = Bench(task("torch.relu(x * 2.0)", "[torch.randn(16, 1024)]"), "cpu")
    found = facts.memory(bench)
    assert (196608, 65536, 131072) == (found["peak"], found["inputs"], found["activations"])
    table = {"rows": [], "unavoidable_us": 1.0, "as_written_us": 1.0, "unfused_us": 1.0, "limiter": "memory"}
    assert "197kB at once, predicted" in tables.limits({**table, "memory": found})
    branch = facts.memory(Bench(task("x * 2.0 if bool(x.sum() > 0) else x + 1.0", "[torch.randn(16, 64)]"), "cpu"))
    assert branch["peak"] is None
    assert "memory       not predicted" in tables.limits({**table, "memory": branch})


@pytest.mark.parametrize("size", [1024, 8192])
def test_the_shipped_power_model_is_near_what_large_products_draw(size: int) -> None:
    """On rates of the device it was learnt on, bfloat16 products of 1024 and more draw between a third and all of what
    the largest draws; its own error is stated and below a tenth."""
    device = Device(132, 4.24e6, {"bfloat16": 7.8e8, "float16": 7.5e8, "float32": 5.06e7, "tf32": 3.8e8})
    learned = products.load()
    (found,) = products.predict(learned, [("bfloat16", size, size, size)], device, 691.0)
    assert found.watts is not None and 230.0 < found.watts < 800.0
    assert 0.0 < learned.watts_error < 0.1 and 0.0 < learned.time_error < 0.1


def test_models_of_products_survive_their_file(tmp_path: object) -> None:
    """Predictions stay within the digits that are kept."""
    device = Device(132, 4.24e6, {"bfloat16": 7.8e8, "float16": 7.5e8, "float32": 5.06e7, "tf32": 3.8e8})
    path = products.Path(str(tmp_path)) / "products.json"
    products.save(products.load(), path)
    job = [("tf32", 1024, 2048, 512)], device, 700.0
    before, after = products.predict(products.load(), *job)[0], products.predict(products.load(path), *job)[0]
    assert torch.allclose(torch.tensor([before.us, before.watts]), torch.tensor([after.us, after.watts]), rtol=1e-2)


def test_ways_of_drawing_are_tried_out_only_where_somebody_wants_their_names() -> None:
    """Each costs a call of the reference; the log of a negative number is none of them."""
    bench = Bench(task("torch.log(x)", "[torch.rand(8, 64) + 0.5]"), "cpu")
    assert [] == facts.describe(bench, machine("cpu"), variants=False)["variants"] and not bench.timed.known
    named = facts.describe(bench, machine("cpu"))["variants"]
    assert "scale 1000" in named and "negated" not in named and not bench.timed.known["negated"]


def test_a_proof_says_that_strided_inputs_were_left_out() -> None:
    assert [] == facts.left_out(Contract())
    assert "never strided" in facts.left_out(Contract(layouts=("contiguous", "offset")))[0]
