"""A problem of a suite: a reference, its candidates, and why one of them cannot be submitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_eval_client.kernel import Kernel
from kernel_eval_client.submission import Submission

MAX_CASES = 32
"""Maximum number of cases of a job (docs/api.md)."""


class NotConvertible(Exception):
    """A problem or candidate that the service cannot judge; the message is the reason."""


@dataclass(frozen=True)
class Candidate:
    """One solution of a problem. Candidates of several problems share a `label`, such as `triton` or `sample_0`.

    Without a kernel, `refused` is the reason why it cannot be submitted.
    """

    label: str
    kernel: Kernel | None
    refused: str | None = None


@dataclass(frozen=True)
class Problem:
    """A reference and its candidates. `timed` is False where only correctness counts, and `about` is one sentence.

    Without a reference, `refused` is the reason why it cannot be submitted. `options` are keyword arguments of
    Submission (`atol`, …).
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
    """A candidate with its problem. Where `submission` is None, `refused` is the reason why it cannot be submitted."""

    problem: Problem
    candidate: Candidate
    submission: Submission | None
    refused: str | None

    @property
    def name(self) -> str:
        """The names of problem and candidate, as `problem:candidate`."""
        return f"{self.problem.name}:{self.candidate.label}"


NO_CANDIDATE = Candidate("–", None, "no candidate was found")


def cases(problems: Iterable[Problem], options: Mapping[str, Any] | None = None) -> Iterator[Case]:
    """Yields each candidate of each problem as a comparison with the reference.

    A problem without candidates gives one case that is refused. `options` are keyword arguments of Submission and
    override the problem's options.
    """
    for problem in problems:
        for candidate in problem.candidates or (NO_CANDIDATE,):
            reason = problem.refused or candidate.refused
            if problem.reference is None or candidate.kernel is None or reason is not None:
                yield Case(problem, candidate, None, reason)
                continue
            submission_options = {**problem.options, **(options or {})}
            submission = Submission(
                candidate.kernel, problem.reference, label=f"{problem.name}:{candidate.label}", **submission_options
            )
            yield Case(problem, candidate, submission, None)
