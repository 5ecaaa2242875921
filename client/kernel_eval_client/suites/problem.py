"""A problem of a suite: a reference, its candidates, and what cannot be handed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.kernel import Kernel
from kernel_eval_client.submission import Submission


class NotOurs(Exception):
    """Why a problem or a candidate of another layout cannot be handed over."""


@dataclass(frozen=True)
class Candidate:
    """One answer to a problem. `label` is what it has in common with its like in other problems: `triton`, `sample_0`.

    Without a kernel, `refused` says why it cannot be handed over.
    """

    label: str
    kernel: Kernel | None
    refused: str | None = None


@dataclass(frozen=True)
class Problem:
    """A reference and its candidates. `timed` is False where only the answers count.

    Without a reference, `refused` says why it cannot be handed over. `options` are those of a Submission (`atol`, …).
    """

    name: str
    reference: Kernel | None
    candidates: Sequence[Candidate] = ()
    level: int | None = None
    about: str = ""
    timed: bool = True
    refused: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A candidate of a problem. `submission` is None where either cannot be handed over: `refused` says why."""

    problem: Problem
    candidate: Candidate
    submission: Submission | None
    refused: str | None

    @property
    def name(self) -> str:
        """Of both, for tables."""
        return f"{self.problem.name}:{self.candidate.label}"


NOBODY = Candidate("–", None, "no candidate was found")


def cases(problems: Iterable[Problem], options: Mapping[str, Any] | None = None) -> Iterator[Case]:
    """Every candidate of every problem as a comparison; a problem without candidates is one case, refused.

    `options` are those of a Submission and win over the problem's own.
    """
    for problem in problems:
        for candidate in problem.candidates or (NOBODY,):
            why = problem.refused or candidate.refused
            if problem.reference is None or candidate.kernel is None or why is not None:
                yield Case(problem, candidate, None, why)
                continue
            chosen = {**problem.options, **(options or {})}
            submission = Submission(
                candidate.kernel, problem.reference, label=f"{problem.name}:{candidate.label}", **chosen
            )
            yield Case(problem, candidate, submission, None)
