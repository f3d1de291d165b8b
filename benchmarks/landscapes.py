# SPDX-License-Identifier: Apache-2.0
"""Strategies at equal candidates on synthetic landscapes with a scripted proposer, 50 seeds each.

A program is a tuple of genes 0..5; its score (log2 of a speedup) depends on the landscape, and the proposer
edits as a mediocre model would: often in vain, sometimes with harm. Nothing here is tuned to a strategy; the same
proposer serves all. Run: python benchmarks/landscapes.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path

from kernelwright.search import (
    Ask,
    Beam,
    BestOfN,
    Chain,
    Contrast,
    Evolution,
    MapElites,
    Mcts,
    Strategy,
    Told,
)

GENES, TOP = 8, 5
BUDGET, SEEDS = 60, 50
Genome = tuple[int, ...]


def ladder(genome: Genome) -> float | None:
    """Every gene counts: progress is many small steps."""
    return sum(genome) / 8.0


def cliffs(genome: Genome) -> float | None:
    """As the ladder, but neighbouring genes that differ by more than 2 cost dearly: steps regress often."""
    harm = sum(abs(a - b) > 2 for a, b in zip(genome, genome[1:], strict=False))
    return sum(genome) / 8.0 - 0.8 * harm


def valley(genome: Genome) -> float | None:
    """A good design lies behind worse ones: the first two genes pay at 1 and again, more, at 5; between they cost."""
    pay = {0: 0.0, 1: 1.0, 2: 0.3, 3: 0.2, 4: 0.8, 5: 2.2}
    return pay[genome[0]] + pay[genome[1]] + sum(genome[2:]) / 16.0


def mosaic(genome: Genome) -> float | None:
    """Two halves pay only when all their genes are high together; what one program found must meet another's."""
    left, right = min(genome[:4]), min(genome[4:])
    return (left + right) / 3.0 + max(left, right) / 6.0 + sum(genome) / 40.0


def brittle(genome: Genome) -> float | None:
    """As the ladder, but a program with an odd number of 3s does not compile."""
    return None if genome.count(3) % 2 else sum(genome) / 8.0


LANDSCAPES: dict[str, Callable[[Genome], float | None]] = {
    "ladder": ladder, "cliffs": cliffs, "valley": valley, "mosaic": mosaic, "brittle": brittle,
}  # fmt: skip
STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "best-of-n": lambda seed: BestOfN(BUDGET, seed),
    "chain": lambda seed: Chain(BUDGET, seed, rollback=False),
    "chain-rollback": lambda seed: Chain(BUDGET, seed),
    "beam": lambda seed: Beam(BUDGET, seed),
    "mcts": lambda seed: Mcts(BUDGET, seed),
    "map-elites": lambda seed: MapElites(BUDGET, seed, axes=("left", "right")),
    "evolution": lambda seed: Evolution(BUDGET, seed),
    "contrast": lambda seed: Contrast(BUDGET, seed),
}


class Proposer:
    """Edits genomes as a mediocre model edits programs; deterministic in its seed and the ask."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.genomes: dict[str, Genome] = {}

    def propose(self, ask: Ask) -> Genome:
        """The genome for one ask."""
        dice = random.Random(f"{self.seed}/{ask.number}")
        parents = [self.genomes[digest] for digest in ask.parents]
        if ask.edit == "cross":
            return tuple(dice.choice(pair) for pair in zip(*parents, strict=True))
        if ask.edit == "contrast":
            return self._contrast([self.genomes[digest] for digest in ask.examples], dice)
        if not parents:
            return tuple(min(dice.randint(0, TOP), dice.randint(0, TOP), dice.randint(0, TOP)) for _ in range(GENES))
        return self._edit(parents[0], dice)

    @staticmethod
    def _edit(genome: Genome, dice: random.Random) -> Genome:
        """One or two genes move: up with probability 0.45, else anywhere."""
        made = list(genome)
        for _ in range(dice.choice((1, 1, 2))):
            at = dice.randrange(GENES)
            made[at] = min(TOP, made[at] + 1) if dice.random() < 0.45 else dice.randint(0, TOP)
        return tuple(made)

    def _contrast(self, shown: list[Genome], dice: random.Random) -> Genome:
        """One step further in a direction in which the best differs from the worst, then one ordinary edit at times."""
        best, worst = shown[0], shown[-1]
        better = [at for at in range(GENES) if best[at] > worst[at]] or list(range(GENES))
        made = list(best)
        at = dice.choice(better)
        made[at] = min(TOP, made[at] + 1)
        return self._edit(tuple(made), dice) if dice.random() < 0.5 else tuple(made)


def play(landscape: Callable[[Genome], float | None], strategy: Strategy, seed: int) -> float:
    """Best score after the budget; -1 when nothing ever worked."""
    proposer = Proposer(seed)
    while (ask := strategy.ask()) is not None:
        genome = proposer.propose(ask)
        name = f"{ask.number}:{genome}"
        proposer.genomes[name] = genome
        features = (("left", str(min(genome[:4]))), ("right", str(min(genome[4:]))))
        text = " ".join(f"gene{at}_{value}" for at, value in enumerate(genome))
        strategy.tell(ask, Told(candidate=name, score=landscape(genome), features=features, text=text))
    best = strategy.best()
    return -1.0 if best is None or best.score is None else best.score


def compare() -> dict[str, dict[str, dict[str, float]]]:
    """Landscape to strategy to mean best score, share of seeds beating best-of-n, and a sign-test z."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, landscape in LANDSCAPES.items():
        scores = {
            label: [play(landscape, make(seed), seed) for seed in range(SEEDS)] for label, make in STRATEGIES.items()
        }
        base = scores["best-of-n"]
        table[name] = {}
        for label, found in scores.items():
            wins = sum(mine > theirs for mine, theirs in zip(found, base, strict=True))
            losses = sum(mine < theirs for mine, theirs in zip(found, base, strict=True))
            table[name][label] = {
                "mean": round(statistics.fmean(found), 4),
                "wins": wins,
                "losses": losses,
                "sign_z": round((wins - losses) / max(1.0, (wins + losses) ** 0.5), 2),
            }
    return table


def main() -> None:
    """Write the table as JSON and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "any" / "landscapes.json")
    chosen = parser.parse_args()
    table = compare()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": "python benchmarks/landscapes.py", "budget": BUDGET, "seeds": SEEDS, "table": table}
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    for name, row in table.items():
        print(name, {label: (cell["mean"], cell["wins"], cell["losses"]) for label, cell in row.items()})


if __name__ == "__main__":
    main()
