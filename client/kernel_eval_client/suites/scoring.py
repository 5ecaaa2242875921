"""The score of a suite: which part is right, which part is faster than p, and the geometric mean of the speed-ups."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernel_eval_client.result import Result
from kernel_eval_client.timing import Speedup

FAST = (0.8, 1.0, 1.5, 2.0)
DRAWS = 2000
_Z = 1.959964
NO_WORD = frozenset({"reference_failed"})
NO_WORD_WITHOUT_GPU = frozenset({"unsupported"})
"""Verdicts that say nothing about the kernel: the reference failed, or the service has no device for it. Where it had
one, it was the kernel that could not be judged, or said so itself."""


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate: a result, or None and the reason why there is none."""

    problem: str
    candidate: str
    level: int | None = None
    result: Result | None = None
    reason: str | None = None
    timed: bool = True

    @property
    def judged(self) -> bool:
        """Something was found out about the candidate."""
        found = self.result
        if found is None or found.verdict in NO_WORD:
            return False
        return found.verdict not in NO_WORD_WITHOUT_GPU or bool(found.environment.get("gpu_name"))


@dataclass(frozen=True)
class Share:
    """So many of so many, with the 95 % interval (Wilson's) of the part that they are; nulls where `of` is 0."""

    count: int
    of: int
    part: float | None
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True)
class Mean:
    """A geometric mean over `of` problems and its 95 % bootstrap interval."""

    ratio: float
    ci_low: float
    ci_high: float
    of: int


@dataclass(frozen=True)
class Score:
    """Of the problems about which something was found out; `not_judged` are the others, and count neither way.

    `fast` is KernelBench's fast_p by p: right, and the measured speed-up above p. `surely_fast`: the whole interval is.
    A right candidate whose speed-up was not measured is in neither. One of which a bound is known is where that settles
    it, and in `bounds` instead of the mean.
    """

    problems: int
    not_judged: int
    correct: Share
    fast: dict[str, Share]
    surely_fast: dict[str, Share]
    speedup: Mean | None
    bounds: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def score(outcomes: Iterable[Outcome]) -> Score:
    """Each problem counts once, with its best candidate: the right one with the highest lower end of its speed-up.

    By the lower end, so that of many candidates the luckiest does not win by its luck alone.
    """
    by_problem: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_problem.setdefault(outcome.problem, []).append(outcome)
    judged = {name: each for name, each in by_problem.items() if any(one.judged for one in each)}
    best = [max(each, key=_worth) for each in judged.values()]
    timed = [each for each in best if each.timed]
    right = [each for each in best if each.result is not None and each.result.passed]
    ratios = [each.result.speedup for each in right if each.timed and each.result and each.result.speedup]
    return Score(
        problems=len(by_problem),
        not_judged=len(by_problem) - len(judged),
        correct=_share(len(right), len(best)),
        fast={
            f"{p:g}": _share(sum(each.bound != "at_most" and each.ratio > p for each in ratios), len(timed))
            for p in FAST
        },
        surely_fast={f"{p:g}": _share(sum(each.ci_low > p for each in ratios), len(timed)) for p in FAST},
        speedup=_mean([each for each in ratios if each.bound is None]),
        bounds=sum(each.bound is not None for each in ratios),
    )


def _worth(outcome: Outcome) -> tuple[bool, bool, float]:
    found = outcome.result
    passed = found is not None and found.passed
    speedup = found.speedup if found is not None and passed else None
    return outcome.judged, passed, speedup.ci_low if speedup else -1.0


def _share(count: int, of: int) -> Share:
    if of == 0:
        return Share(count, of, None, None, None)
    part, z2 = count / of, _Z * _Z
    middle = (part + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * math.sqrt(part * (1 - part) / of + z2 / (4 * of * of))
    return Share(count, of, part, max(0.0, middle - half), min(1.0, middle + half))


def _mean(ratios: Sequence[Speedup]) -> Mean | None:
    """Problems are drawn again with replacement, and each one's logarithm anew from its own interval.

    The first is what other problems of the kind would have given, the second what other measurements would. Where an
    end of an interval is missing, that problem's own uncertainty is left out.
    """
    measured = [(math.log(each.ratio), _spread(each)) for each in ratios if each.ratio > 0]
    if not measured:
        return None
    chance = random.Random(0)
    means = []
    for _ in range(DRAWS):
        drawn = chance.choices(measured, k=len(measured))
        means.append(sum(chance.gauss(middle, spread) for middle, spread in drawn) / len(drawn))
    means.sort()
    low, high = means[round(0.025 * (DRAWS - 1))], means[round(0.975 * (DRAWS - 1))]
    middle = sum(each for each, _ in measured) / len(measured)
    return Mean(math.exp(middle), math.exp(low), math.exp(high), len(measured))


def _spread(found: Speedup) -> float:
    if found.ci_high is None or found.ci_low <= 0:
        return 0.0
    return (math.log(found.ci_high) - math.log(found.ci_low)) / (2 * _Z)
