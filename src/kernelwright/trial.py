# SPDX-License-Identifier: Apache-2.0
"""What happened to one candidate: Rejected, Verified, or Timed. No field of a result has a default."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from kernelwright.candidate import Candidate

STAGES = ("scan", "build", "load", "smoke", "verify", "time", "integrity", "sandbox", "sanitize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Samples of one program on one case, in microseconds per call, by the judge's clock."""

    samples_us: tuple[float, ...]
    low_us: float
    """Lower end of the 95 % bootstrap interval of the median."""
    high_us: float

    @property
    def median_us(self) -> float:
        """The median; a measurement is a distribution and this is its one-number summary."""
        return statistics.median(self.samples_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An honest alternative timed in the same session, interleaved with the candidate."""

    name: str
    """``eager``, ``compile``, ``compile-max-autotune``, ``cuda-graph``."""
    timing: Timing
    speedup: float
    """Median over the rounds of baseline / candidate: near the ratio of their medians, not equal to it."""
    speedup_low: float
    """Lower end of the 95 % paired bootstrap interval of that ratio."""
    speedup_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One checked case. ``error_ratio`` is the worst over outputs; exact outputs count as 0 or fail."""

    name: str
    required: bool
    """False: a probe outside the contract; a failure narrows the proven space instead of rejecting."""
    passed: bool
    detail: str
    error_ratio: float
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The proof of correctness. Only ``judge/verify.py`` constructs it."""

    cases: tuple[CaseResult, ...]
    outputs: int
    """Leaves of the output tree compared in each call."""
    checked_calls: int
    """Calls whose outputs were compared in full, timed ones included."""
    error_ratio: float
    """Worst error of the candidate over eager's own, both against ``oracle``."""
    bits_lost: float
    """log2(error_ratio), at least 0."""
    oracle: str
    """``float64``, ``float64-trace``, ``orders-of-summation`` or ``exact``."""
    deterministic: bool
    seed: int
    """Everything drawn in this judgement follows from it."""
    sandbox: str
    """The isolation level reached, in words."""
    notes: tuple[str, ...]
    """What a reader must know: ill-conditioned reference, contract loosened by the caller, probes that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The candidate failed: at a stage of STAGES, for a one-line reason, with at most 4000 characters of evidence."""

    stage: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Verified and measured. A speedup exists only beside a proof."""

    proof: Verified
    timing: Timing
    baselines: tuple[Baseline, ...]
    best_baseline: str
    speedup: float
    """Against the best baseline."""
    speedup_low: float
    speedup_high: float
    bound_us: float | None
    """Unavoidable lower bound on this machine (bytes only), or None where the machine is not measured."""
    bound_fraction: float | None
    """bound_us / median_us."""
    limiter: str
    """What the bound says limits it: ``memory``, ``compute``, ``launch`` or ``unknown``."""
    conditions: tuple[str, ...]
    """Facts of the session: cold or warm cache, sets rotated, clocks, throttling, other load seen, level of timing."""
    repeats: int
    """How many fresh processes timed it (finalists: 2 or more)."""
    profile: tuple[tuple[str, str], ...]
    """Compiled and counted facts of exactly this code, as (name, value), and what was measured besides of it and of its
    baselines (``server.eager.p99_us``); empty where none were asked for."""


Outcome = Rejected | Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Candidate + Outcome + where and with what; append-only; enough to replay it."""

    candidate: Candidate
    outcome: Rejected | Timed
    level: str
    """``coarse`` or ``precise``: how much was spent on it."""
    machine: str
    """Fingerprint of the device and versions."""
    versions: tuple[tuple[str, str], ...]
    seconds: float
    """Wall time the judgement took."""
    started_at: float
    """Unix time."""
