# SPDX-License-Identifier: Apache-2.0
"""Strategies and the strategies of all recipes at equal candidates on synthetic landscapes, 50 seeds each.

A program is a tuple of genes 0..5; its score (log2 of a speedup) depends on the landscape, and the proposer
edits as a mediocre model would: often in vain, sometimes with harm. Nothing here is tuned to a strategy; the same
proposer serves all. Only what a strategy decides is compared: advice, diagnosis, knowledge, tuning and testers have
no part here, so recipes that differ in these alone come out equal. Run: python benchmarks/landscapes.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path

from kernelwright import recipes
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
    "map-elites": lambda seed: MapElites(BUDGET, seed, axes=("memory", "fusion")),
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
        features = (("fusion", str(min(genome[4:]))), ("memory", str(min(genome[:4]))))
        text = " ".join(f"gene{at}_{value}" for at, value in enumerate(genome))
        strategy.tell(ask, Told(candidate=name, score=landscape(genome), features=features, text=text))
    best = strategy.best()
    return -1.0 if best is None or best.score is None else best.score


CLAIMS: dict[str, tuple[tuple[str, ...], str]] = {
    "chain": (tuple(LANDSCAPES), "CudaForge: feedback on one program beats independent samples"),
    "chain-rollback": (tuple(LANDSCAPES), "CudaForge and AutoKernel, with keep-or-revert"),
    "beam": (("ladder", "cliffs", "brittle", "mosaic"), "KernelAgent, StitchCUDA: the best few are each improved"),
    "mcts": (("ladder", "cliffs", "valley", "brittle"), "OptiML: edits that regress are searched past"),
    "map-elites": (("ladder", "valley", "mosaic", "brittle"), "KernelFoundry: kept variety crosses valleys"),
    "evolution": (("ladder", "mosaic", "brittle"), "robust-kbench: crossover joins what two programs found"),
    "contrast": (("ladder", "cliffs", "brittle"), "CUDA-L1: differences between fast and slow show the way"),
}
"""Strategy to the landscapes on which its paper's argument says that it beats best-of-n, and that argument."""
LEAST_Z = 1.96


def entrants() -> dict[str, Callable[[int], Strategy]]:
    """The strategies by themselves, and every recipe with its own options as ``recipe:NAME``."""
    found = dict(STRATEGIES)
    for name, row in recipes.load().items():
        found[f"recipe:{name}"] = lambda seed, row=row: row.start(BUDGET, seed)
    return found


def sign(mine: list[float], theirs: list[float]) -> dict[str, float]:
    """Wins and losses over paired seeds, and the z of the sign test."""
    wins = sum(one > two for one, two in zip(mine, theirs, strict=True))
    losses = sum(one < two for one, two in zip(mine, theirs, strict=True))
    return {"wins": wins, "losses": losses, "sign_z": round((wins - losses) / max(1.0, (wins + losses) ** 0.5), 2)}


def scores(
    makers: dict[str, Callable[[int], Strategy]] | None = None, seeds: int = SEEDS
) -> dict[str, dict[str, list[float]]]:
    """Landscape to entrant to its best score for each seed."""
    chosen = makers or entrants()
    return {
        name: {label: [play(landscape, make(seed), seed) for seed in range(seeds)] for label, make in chosen.items()}
        for name, landscape in LANDSCAPES.items()
    }


def table(found: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Landscape to entrant to its mean best score and its sign test against best-of-n."""
    return {
        name: {
            label: {"mean": round(statistics.fmean(mine), 4), **sign(mine, row["best-of-n"])}
            for label, mine in row.items()
        }
        for name, row in found.items()
    }


def claims(found: dict[str, dict[str, list[float]]]) -> list[dict[str, object]]:
    """Every claim with its test: a strategy against best-of-n where its paper says so, rollback against the chain."""
    rows: list[dict[str, object]] = []
    for strategy, (places, why) in CLAIMS.items():
        for name in places:
            test = sign(found[name][strategy], found[name]["best-of-n"])
            rows.append({"strategy": strategy, "beats": "best-of-n", "on": name, "because": why, **test})
    for name in LANDSCAPES:
        test = sign(found[name]["chain-rollback"], found[name]["chain"])
        why = "a regression is not built upon"
        rows.append({"strategy": "chain-rollback", "beats": "chain", "on": name, "because": why, **test})
    return [row | {"holds": float(str(row["sign_z"])) >= LEAST_Z} for row in rows]


def ranking(found: dict[str, dict[str, list[float]]]) -> list[tuple[str, float, float]]:
    """(recipe, mean over landscapes of its score as a share of the best entrant's, worst such share), best first."""
    shares: dict[str, list[float]] = {}
    for row in found.values():
        means = {label: statistics.fmean(mine) for label, mine in row.items()}
        for label, mean in means.items():
            if label.startswith("recipe:"):
                shares.setdefault(label.removeprefix("recipe:"), []).append(mean / max(means.values()))
    made = [(name, round(statistics.fmean(each), 4), round(min(each), 4)) for name, each in shares.items()]
    return sorted(made, key=lambda item: (-item[1], item[0]))


def main() -> None:
    """Write the table as JSON and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "any" / "landscapes.json")
    chosen = parser.parse_args()
    found = scores()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    made = claims(found)
    record = {
        "command": "python benchmarks/landscapes.py",
        "budget": BUDGET,
        "seeds": SEEDS,
        "recipes_by_share_of_the_best": ranking(found),
        "claims": made,
        "claims_that_fail": [row for row in made if not row["holds"]],
        "table": table(found),
    }
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    for name, mean, worst in ranking(found):
        print(f"{name:12} {mean:.3f} of the best entrant on average, {worst:.3f} at worst")
    print(f"{sum(bool(row['holds']) for row in made)} of {len(made)} claims hold (sign test, z >= {LEAST_Z})")
    for row in record["claims_that_fail"]:
        print("FAILS", row)


if __name__ == "__main__":
    main()
