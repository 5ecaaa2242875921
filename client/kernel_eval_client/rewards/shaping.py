"""Turns a verdict into a reward: correctness first, and speed only with a clear interval and without a flag."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.flag import LOWER_PRECISION
from kernel_eval_client.result import Result


@dataclass(frozen=True)
class Scored:
    """The reward of one completion; None where the service could not judge it.

    `parts` add up to the reward. `held_back` has the reasons why there is no bonus for speed.
    """

    reward: float | None
    verdict: str
    parts: Mapping[str, float] = field(default_factory=dict)
    held_back: tuple[str, ...] = ()
    reason: str | None = None
    result: Result | None = field(default=None, repr=False)

    def metrics(self) -> dict[str, Any]:
        """Plain values to log with the reward, always under the same keys."""
        # Against a problem that fixed outputs pass, a ratio would only mislead who averages it.
        known = self.result is not None and self.result.fixed_outputs_pass is None
        speedup = self.result.speedup if self.result and known else None
        return {
            "verdict": self.verdict,
            "correct": self.verdict == "passed",
            "speedup": speedup.measured if speedup else None,
            "speedup_ci_low": speedup.ci_low if speedup else None,
            "headroom": self.result.headroom.ratio if self.result else None,
            "speed_bonus": self.parts.get("speed", 0.0),
            "held_back": "; ".join(self.held_back),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Shaping:
    """The rewards: `failed`, or `correct` + `speed` × log2(min(`cap`, lower end of the speed-up)).

    There is a bonus for speed only where the whole interval is above 1 and nothing is flagged: a flag is a reason to
    look at a time, and a time to be looked at is none to learn from. `ignored` are codes of flags that do not count.
    A problem that outputs fixed beforehand pass (`fixed_outputs_pass`) earns `failed`: it teaches nothing but those.
    """

    failed: float = 0.0
    no_code: float = 0.0
    correct: float = 1.0
    speed: float = 0.5
    cap: float = 8.0
    lower_precision: bool = False
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError if a failure would earn as much as a correct kernel."""
        if not max(self.failed, self.no_code) < self.correct or self.speed < 0 or self.cap < 1:
            raise ValueError("failed and no_code must be below correct, speed 0 or more, cap 1 or more")
        if sentences := [each for each in self.ignored if not each.isidentifier()]:
            raise ValueError(
                f"`ignored` holds codes of flags, such as upper_bound (docs/errors.md), not {sentences[0]!r}"
            )

    def of_nothing(self, reason: str) -> Scored:
        """The reward of a completion without a source."""
        return Scored(self.no_code, "no_code", {"no_code": self.no_code}, reason=reason)

    def of_refusal(self, reason: str) -> Scored:
        """The reward of a kernel that the service refuses: too long, or without the contract that it needs."""
        return Scored(self.failed, "refused", {"failed": self.failed}, reason=reason)

    def of_result(self, result: Result) -> Scored:
        """The reward of a verdict."""
        if not result.judged:
            return Scored(None, result.verdict, reason=result.error, result=result)
        if not result.passed:
            return Scored(self.failed, result.verdict, {"failed": self.failed}, reason=result.error, result=result)
        weak = result.fixed_outputs_pass
        if result.kernel.comparison is None or (weak is not None and weak.code not in self.ignored):
            why = "it was not compared" if weak is None else weak.message
            return Scored(self.failed, result.verdict, {"failed": self.failed}, (why,), why, result)
        held_back = tuple(self._reasons_without_bonus(result))
        bonus = 0.0
        if not held_back and result.speedup is not None:
            bonus = self.speed * math.log2(min(self.cap, result.speedup.ci_low))
        parts = {"correct": self.correct, "speed": bonus}
        return Scored(sum(parts.values()), result.verdict, parts, held_back, result=result)

    def _reasons_without_bonus(self, result: Result) -> Iterator[str]:
        """Yields the reasons why this speed-up earns no bonus."""
        if result.speedup is None:
            yield result.speedup_unavailable_reason or "no speed-up was measured"
        elif result.speedup.verdict != "faster" or result.speedup.ci_low <= 1.0:
            yield f"it is {result.speedup.verdict.replace('_', ' ')}"
        inputs, comparison = result.kernel.inputs, result.kernel.comparison
        about_task = comparison.weak_reference if comparison else ()
        messages = (flag.message for flag in (*result.kernel.flags, *about_task) if flag.code not in self.ignored)
        yield from dict.fromkeys(messages)
        if inputs.get("inputs_replayed"):
            yield "its inputs were known beforehand"
        if inputs.get("reused_sets") or inputs.get("inputs_not_random"):
            yield "it was given inputs a second time, and may have kept its answers"
        if skipped_checks := result.budget.get("skipped_checks"):
            yield f"its budget did not look at {', '.join(map(str, skipped_checks))}"
        finding = comparison.precision_finding if comparison else None
        if finding is not None and not (self.lower_precision and finding.code == LOWER_PRECISION):
            yield finding.message
