"""A reward function over a batch: completions are judged side by side, the same source once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernel_eval_client.async_client import CONCURRENCY, Finished
from kernel_eval_client.client import Client
from kernel_eval_client.contract import IOContract
from kernel_eval_client.errors import CallerError, KeyRefused, UnknownJob
from kernel_eval_client.flow import Retry
from kernel_eval_client.kernel import Kernel, KernelType, guess_type, torch
from kernel_eval_client.rewards.extraction import CUDA, Completion, extract
from kernel_eval_client.rewards.shaping import Scored, Shaping
from kernel_eval_client.submission import KernelLike, Options, Submission

Reference = str | KernelLike
"""A reference: PyTorch source, a Kernel, or one in the wire's form."""


@dataclass(frozen=True)
class KernelReward:
    """Rewards completions for right and fast kernels. As TRL's GRPO asks: `reward(completions, reference=[...])`.

    What the service failed is never a reward: with `errors="none"` it is None, which TRL leaves out of its means, and
    with `errors="raise"` the error is raised. A request at fault for another reason than the completion (a key, an
    option, a reference that is no kernel, a contract's arguments) always raises.
    """

    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    shaping: Shaping = field(default_factory=Shaping)
    options: Options = field(default_factory=lambda: Options())
    errors: Literal["none", "raise"] = "none"
    concurrency: int = CONCURRENCY
    max_wait_s: float | None = None
    retry: Retry | None = None

    def __post_init__(self) -> None:
        if self.errors not in ("none", "raise"):
            raise ValueError(f"errors is {self.errors!r}; it is 'none' or 'raise'")

    @property
    def __name__(self) -> str:
        """What trainers log it under."""
        return "kernel_reward"

    def __call__(
        self, completions: Sequence[Completion], reference: Sequence[Reference], **columns: Any
    ) -> list[float | None]:
        """A reward for each completion. `reference` is the data set's column; so may be `io` and `kernel_type`."""
        scored = self.score(completions, reference, columns.get("io"), columns.get("kernel_type"))
        return [each.reward for each in scored]

    def score(
        self,
        completions: Sequence[Completion],
        references: Sequence[Reference],
        contracts: Sequence[IOContract | Mapping[str, Any] | None] | None = None,
        types: Sequence[str | None] | None = None,
    ) -> list[Scored]:
        """The rewards with what they are made of. `contracts` are of candidates in raw CUDA or bare Triton.

        Raises ValueError where a column is not as long as the completions, or has no reference.
        """
        count = len(completions)
        for name, column in (("reference", references), ("io", contracts), ("kernel_type", types)):
            if column is not None and (isinstance(column, str) or len(column) != count):
                what = "one text" if isinstance(column, str) else f"{len(column)} entries"
                raise ValueError(f"{name} is {what} for {count} completions: give a list with one for each")
        found: list[Scored | None] = [None] * count
        wanted: dict[str, list[int]] = {}
        submissions: list[Submission] = []
        for place, (completion, reference, io, kind) in enumerate(
            zip(completions, references, contracts or [None] * count, types or [None] * count, strict=True)
        ):
            made = self._submission(completion, reference, io, kind)
            if isinstance(made, Scored):
                found[place] = made
                continue
            digest, submission = made
            if digest not in wanted:
                submissions.append(submission)
            wanted.setdefault(digest, []).append(place)
        digests = list(wanted)
        if submissions:
            with Client(self.url, self.api_key, retry=self.retry) as client:
                for each in client.map(submissions, concurrency=self.concurrency, max_wait_s=self.max_wait_s):
                    scored = self._scored(each)
                    for place in wanted[digests[each.index]]:
                        found[place] = scored
        return [each for each in found if each is not None]

    def _submission(
        self, completion: Completion, reference: Reference, io: Any, kind: str | None
    ) -> tuple[str, Submission] | Scored:
        if reference is None:
            # Else it would be judged alone, and no answer, right or wrong, would ever earn anything.
            raise ValueError("a reference is None, and nothing can be right without one: mend the data set's column")
        code = extract(completion)
        if code.source is None:
            return self.shaping.of_nothing(code.reason or "")
        kernel_type = KernelType(kind) if kind else guess_type(code.source, "a.cu" if code.language in CUDA else "")
        if kernel_type is KernelType.CUDA and io is None and not kind and code.language in CUDA:
            kernel_type = guess_type(code.source)  # A block that is called cuda and is Python around it.
        kernel = Kernel(code.source, kernel_type, io)
        submission = Submission(kernel, torch(reference) if isinstance(reference, str) else reference, **self.options)
        return hashlib.sha256(submission.body()).hexdigest(), submission

    def _scored(self, finished: Finished) -> Scored:
        error = finished.error
        if error is None and finished.result is not None:
            return self.shaping.of_result(finished.result)
        assert error is not None, "a submission has a result or an error"
        if isinstance(error, CallerError) and not isinstance(error, UnknownJob):
            if isinstance(error, KeyRefused) or not _is_the_candidates(error):
                raise error
            return self.shaping.of_refusal(str(error))
        if self.errors == "raise":
            raise error
        return Scored(None, type(error).__name__, reason=str(error))


def _is_the_candidates(error: CallerError) -> bool:
    """Every field at fault is of the candidate, and not of the arguments in a contract, which the data set gave."""
    paths = [each.path for each in error.fields]
    return bool(paths) and all(path[:1] == ("custom_kernel",) and path[1:3] != ("io", "args") for path in paths)
