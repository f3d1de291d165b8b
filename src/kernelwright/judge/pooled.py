# SPDX-License-Identifier: Apache-2.0
"""Results of checked calls, put together."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.trial import CaseResult


def pool(results: Sequence[CaseResult]) -> tuple[CaseResult, ...]:
    """One result per case and variant: all calls must pass; the worst ratio and the first failure are kept."""
    merged: dict[str, CaseResult] = {}
    for result in results:
        known = merged.get(result.name)
        if known is None:
            merged[result.name] = result
            continue
        merged[result.name] = CaseResult(
            name=result.name,
            required=known.required or result.required,
            passed=known.passed and result.passed,
            detail=known.detail or result.detail,
            error_ratio=max(known.error_ratio, result.error_ratio),
            calls=known.calls + result.calls,
        )
    return tuple(merged.values())


def failure(results: Sequence[CaseResult]) -> CaseResult | None:
    """The first required result that failed, or None."""
    return next((result for result in results if result.required and not result.passed), None)
