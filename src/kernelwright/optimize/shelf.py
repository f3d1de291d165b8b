# SPDX-License-Identifier: Apache-2.0
"""What one search knows of its candidates: evidence by digest, what repeats, what was said of each, in order."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright import diagnosis
from kernelwright.candidate import Candidate
from kernelwright.diagnosis.observed import observed
from kernelwright.optimize.advised import Advised
from kernelwright.optimize.traits import fingerprint, number
from kernelwright.proposers.agent import Ask, Evidence, describe_attempt
from kernelwright.trial import Outcome, Rejected, Timed

HISTORY = 8
"""Attempts listed in a prompt: the best three and the latest others."""
BEST = 3
CAUGHT = "a case of the tester: "
"""How the judge begins the reason of a rejection that only a tester's case brought about."""
Facts = Mapping[str, float | str]


class Shelf:
    """Settled candidates of one search. All of it follows from replies and outcomes, so a replay sees the same."""

    def __init__(self, device: str, *, diagnose: bool) -> None:
        self._device, self._diagnose = device, diagnose
        self.known: dict[str, Evidence] = {}
        """Digest of a candidate to what is known of it, in the order of settling."""
        self.prints: dict[str, str] = {}
        """Fingerprint of a source to the digest of its first candidate."""
        self.objects: dict[str, str] = {}
        """Address of a compiled object, with the rest of its program, to the digest of its first candidate."""
        self.repeats: dict[str, int] = {}
        """Digest of a candidate to how often it was sent again."""
        self.stands: dict[str, str] = {}
        """Digest of a candidate to that of the tuned one that stands for it."""
        self.fits: dict[str, str] = {}
        """Digest of a candidate to what the values gave that were tried for its tunables."""
        self.unread: dict[str, tuple[Ask, str, str]] = {}
        """Name of an answer without a program to its request, its text and what was wrong with it."""
        self.advised = Advised()
        """What advisers asked for and what came of it."""

    def keep(
        self, candidate: Candidate, outcome: Outcome | None, profile: Facts, static: Facts | None = None
    ) -> Evidence:
        """File a settled candidate. ``static``: facts of its compiled object, known of rejected programs too."""
        text = "\n".join(part for part in (self.diagnosis(outcome, profile), self.fits.get(candidate.digest())) if part)
        if isinstance(outcome, Rejected):
            text = observed({n: v for n, v in (static or {}).items() if not isinstance(v, str)}, self._device)
        shown = self.known[candidate.digest()] = Evidence(candidate=candidate, outcome=outcome, diagnosis=text)
        return shown

    def twin(self, candidate: Candidate, static: Facts) -> str | None:
        """The first candidate that compiled to this object, which may be this one; None without an object."""
        if not static.get("object"):
            return None
        rest = fingerprint(candidate, compiled=False)
        first = self.objects.setdefault(f"{static['object']} {rest}", candidate.digest())
        return self.stands.get(first, first)

    def history(self) -> tuple[str, ...]:
        """The best attempts and the latest ones, a line each, in the order they were made."""
        everyone = list(self.known.values())
        timed = sorted((shown for shown in everyone if isinstance(shown.outcome, Timed)), key=_speed, reverse=True)
        chosen = timed[:BEST]
        latest = [shown for shown in reversed(everyone) if shown not in chosen][: HISTORY - len(chosen)]
        return tuple(self._attempt(shown) for shown in everyone if shown in chosen or shown in latest)

    def _attempt(self, shown: Evidence) -> str:
        times = self.repeats.get(shown.candidate.digest(), 0)
        return describe_attempt(shown) + (f" (sent again {times} time{'s' if times > 1 else ''})" if times else "")

    def failures(self, most: int = 6) -> tuple[str, ...]:
        """Why the latest wrong programs were wrong, newest first, each once."""
        wrong = [
            shown.outcome.reason
            for shown in reversed(list(self.known.values()))
            if isinstance(shown.outcome, Rejected) and shown.outcome.stage in ("smoke", "verify", "time")
        ]
        return tuple(dict.fromkeys(reason[:300] for reason in wrong))[:most]

    def caught(self, most: int = 6) -> tuple[str, ...]:
        """Programs that a tester's cases rejected, newest first, and how many passed the contract alone."""
        everyone = [shown.outcome for shown in self.known.values() if shown.outcome is not None]
        caught = [o.reason for o in everyone if isinstance(o, Rejected) and o.reason.startswith(CAUGHT)]
        passed = sum(isinstance(outcome, Timed) for outcome in everyone)
        lines = [f"rejected a program: {reason.removeprefix(CAUGHT)[:300]}" for reason in reversed(caught[-most:])]
        return (*lines, *([f"{passed} programs passed every case"] if passed else []))

    def diagnosis(self, outcome: Outcome | None, profile: Facts) -> str:
        """From recorded facts alone: those of the compiled object, and those of a run where one was made."""
        if not self._diagnose or not isinstance(outcome, Timed):
            return ""
        facts = {name: number(value) for name, value in outcome.profile if name != "object"}
        facts |= {name: value for name, value in profile.items() if not isinstance(value, str)}
        counted = {name: value for name, value in facts.items() if value is not None}
        found = diagnosis.diagnose(
            counted,
            device=self._device,
            time_us=outcome.timing.median_us,
            bound_us=outcome.bound_us,
            limiter=outcome.limiter,
        )
        lines = [line for line in found.text().splitlines() if not line.startswith("Not measured here")]
        return "\n".join([*lines, observed(counted, self._device)]).strip()


def _speed(shown: Evidence) -> float:
    return shown.outcome.speedup if isinstance(shown.outcome, Timed) else 0.0
