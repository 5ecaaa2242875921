"""The score of a suite: the share that is correct, the share faster than p, and the geometric mean speed-up."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernel_eval_client.result import Result
from kernel_eval_client.timing import Speedup

FAST = (0.8, 1.0, 1.5, 2.0)
BOOTSTRAP_DRAWS = 2000
_Z = 1.959964


@dataclass(frozen=True)
class Outcome:
    """One candidate's result, or None and the reason why it has no result."""

    problem: str
    candidate: str
    level: int | None = None
    result: Result | None = None
    reason: str | None = None
    timed: bool = True

    @property
    def judged(self) -> bool:
        """Whether the result says something about the candidate."""
        return self.result is not None and self.result.judged

    @property
    def worker_lacks_something(self) -> bool:
        """Whether it is unjudged because the worker has no GPU, or not what the kernel needs."""
        return self.result is not None and self.result.verdict == "unsupported" and not self.judged

    @property
    def speedup_is_meaningless(self) -> bool:
        """Whether outputs fixed beforehand would pass too."""
        return self.result is not None and self.result.passed and self.result.fixed_outputs_pass is not None


@dataclass(frozen=True)
class Share:
    """`count` of `of`, their ratio `part` and its 95 % interval (Wilson's); the last three are None where `of` is 0."""

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
    """The score of the problems with a judged candidate; `not_judged` counts the others, which no share includes.

    `fast` is KernelBench's fast_p by p: the share that is correct and whose measured speed-up is above p.
    `surely_fast` requires the whole interval above p. Neither includes a candidate without a measured speed-up. A
    speed-up that is only a bound counts where the bound decides it; `bounds` counts these, and the mean excludes them.

    `fixed_outputs_pass` names the problems that outputs fixed beforehand would pass: they count for correctness only.
    """

    problems: int
    not_judged: int
    correct: Share
    fast: dict[str, Share]
    surely_fast: dict[str, Share]
    speedup: Mean | None
    bounds: int = 0
    fixed_outputs_pass: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return asdict(self)


def score(outcomes: Iterable[Outcome]) -> Score:
    """Scores each problem once, by its best candidate: the correct one whose speed-up has the highest lower end.

    The lower end keeps the luckiest of many candidates from winning by a single high measurement.
    """
    by_problem: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_problem.setdefault(outcome.problem, []).append(outcome)
    judged = {name: group for name, group in by_problem.items() if any(outcome.judged for outcome in group)}
    best = [max(group, key=_worth) for group in judged.values()]
    weak = {outcome.problem for group in judged.values() for outcome in group if outcome.speedup_is_meaningless}
    timed = [outcome for outcome in best if outcome.timed and outcome.problem not in weak]
    correct = [outcome.result for outcome in best if outcome.result is not None and outcome.result.passed]
    ratios = [
        outcome.result.speedup
        for outcome in timed
        if outcome.result is not None and outcome.result.passed and outcome.result.speedup is not None
    ]
    return Score(
        problems=len(by_problem),
        not_judged=len(by_problem) - len(judged),
        correct=_share(len(correct), len(best)),
        fast={
            f"{p:g}": _share(sum(each.bound != "at_most" and each.ratio > p for each in ratios), len(timed))
            for p in FAST
        },
        surely_fast={f"{p:g}": _share(sum(each.ci_low > p for each in ratios), len(timed)) for p in FAST},
        speedup=_mean([each for each in ratios if each.bound is None]),
        bounds=sum(each.bound is not None for each in ratios),
        fixed_outputs_pass=sorted(weak),
    )


def _worth(outcome: Outcome) -> tuple[bool, bool, float]:
    result = outcome.result
    passed = result is not None and result.passed
    speedup = result.speedup if result is not None and passed else None
    return outcome.judged, passed, speedup.ci_low if speedup else -1.0


def _share(count: int, of: int) -> Share:
    if of == 0:
        return Share(count, of, None, None, None)
    part, z2 = count / of, _Z * _Z
    middle = (part + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * math.sqrt(part * (1 - part) / of + z2 / (4 * of * of))
    return Share(count, of, part, max(0.0, middle - half), min(1.0, middle + half))


def _mean(ratios: Sequence[Speedup]) -> Mean | None:
    """The geometric mean, with a bootstrap interval over problems (drawn with replacement) and over measurements.

    Each drawn problem's logarithm is drawn from its interval. A problem with an incomplete interval counts as exact.
    """
    measured = [(math.log(each.ratio), _spread(each)) for each in ratios if each.ratio > 0]
    if not measured:
        return None
    chance = random.Random(0)
    means = []
    for _ in range(BOOTSTRAP_DRAWS):
        drawn = chance.choices(measured, k=len(measured))
        means.append(sum(chance.gauss(middle, spread) for middle, spread in drawn) / len(drawn))
    means.sort()
    low, high = means[round(0.025 * (BOOTSTRAP_DRAWS - 1))], means[round(0.975 * (BOOTSTRAP_DRAWS - 1))]
    middle = sum(each for each, _ in measured) / len(measured)
    return Mean(math.exp(middle), math.exp(low), math.exp(high), len(measured))


def _spread(speedup: Speedup) -> float:
    if speedup.ci_high is None or speedup.ci_low <= 0:
        return 0.0
    return (math.log(speedup.ci_high) - math.log(speedup.ci_low)) / (2 * _Z)
