"""A reward function over a batch: the service judges completions concurrently, and equal requests once."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
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
from kernel_eval_client.untrusted_text import plain

_log = logging.getLogger("kernel_eval_client")
MEND = {
    "reference_failed": "their reference fails; correct it in the data set",
    "unsupported": "their worker lacks what they need; choose a service whose workers have it",
}
"""What to do about a result that says nothing about its completion, by verdict."""
Reference = str | KernelLike
"""A reference: PyTorch source, a Kernel, or a kernel as JSON."""


@dataclass(frozen=True)
class KernelReward:
    """Rewards completions for correct and fast kernels. TRL's GRPO calls it: `reward(completions, reference=[...])`.

    A failure of the service gives no reward: None with `errors="none"`, which TRL excludes from its means, and an
    exception with `errors="raise"`. A reference that fails gives None too, and so does a kernel that needs what the
    worker lacks, such as a GPU; both log a warning. A request at fault for another reason than the completion always
    raises: a key, an option, an invalid reference, arguments.
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
        """The name under which trainers log the reward."""
        return "kernel_reward"

    def __call__(
        self, completions: Sequence[Completion], reference: Sequence[Reference], **columns: Any
    ) -> list[float | None]:
        """A reward for each completion. `reference`, `io` and `kernel_type` (optional) are columns of the data set."""
        scored = self.score(completions, reference, columns.get("io"), columns.get("kernel_type"))
        return [score.reward for score in scored]

    def score(
        self,
        completions: Sequence[Completion],
        references: Sequence[Reference],
        contracts: Sequence[IOContract | Mapping[str, Any] | None] | None = None,
        types: Sequence[str | None] | None = None,
    ) -> list[Scored]:
        """A reward with its parts for each completion. `contracts` are for candidates in raw CUDA or bare Triton.

        Raises ValueError for a column of another length than the completions, or for a missing reference.
        """
        count = len(completions)
        for name, column in (("reference", references), ("io", contracts), ("kernel_type", types)):
            if column is not None and (isinstance(column, str) or len(column) != count):
                length = "one text" if isinstance(column, str) else f"{len(column)} entries"
                raise ValueError(f"{name} is {length} for {count} completions: give a list with one for each")
        scores: list[Scored | None] = [None] * count
        positions: dict[str, list[int]] = {}
        submissions: list[Submission] = []
        for position, (completion, reference, io, kind) in enumerate(
            zip(completions, references, contracts or [None] * count, types or [None] * count, strict=True)
        ):
            request = self._submission(completion, reference, io, kind)
            if isinstance(request, Scored):
                scores[position] = request
                continue
            digest, submission = request
            if digest not in positions:
                submissions.append(submission)
            positions.setdefault(digest, []).append(position)
        digests = list(positions)
        if submissions:
            with Client(self.url, self.api_key, retry=self.retry) as client:
                for finished in client.map(submissions, concurrency=self.concurrency, max_wait_s=self.max_wait_s):
                    reward = self._scored(finished)
                    for position in positions[digests[finished.index]]:
                        scores[position] = reward
        complete = [score for score in scores if score is not None]
        _warn_of_unjudged(complete)
        return complete

    def _submission(
        self, completion: Completion, reference: Reference, io: Any, kind: str | None
    ) -> tuple[str, Submission] | Scored:
        if reference is None:
            # Without a reference the service compares nothing, and no completion could earn a reward.
            raise ValueError("a reference is None, and nothing can be compared with it: mend the data set's column")
        code = extract(completion)
        if code.source is None:
            return self.shaping.of_nothing(code.reason or "")
        kernel_type = KernelType(kind) if kind else guess_type(code.source, "a.cu" if code.language in CUDA else "")
        if kernel_type is KernelType.CUDA and io is None and not kind and code.language in CUDA:
            kernel_type = guess_type(code.source)  # A block labelled cuda may hold Python with CUDA in it.
        kernel = Kernel(code.source, kernel_type, io)
        submission = Submission(kernel, torch(reference) if isinstance(reference, str) else reference, **self.options)
        return hashlib.sha256(submission.body()).hexdigest(), submission

    def _scored(self, finished: Finished) -> Scored:
        error = finished.error
        if error is None and finished.result is not None:
            return self.shaping.of_result(finished.result)
        assert error is not None, "a submission has a result or an error"
        if isinstance(error, CallerError) and not isinstance(error, UnknownJob):
            if isinstance(error, KeyRefused) or not _is_candidates_fault(error):
                raise error
            return self.shaping.of_refusal(str(error))
        if self.errors == "raise":
            raise error
        return Scored(None, type(error).__name__, reason=str(error))


def _warn_of_unjudged(scores: Sequence[Scored]) -> None:
    """Warns of results that say nothing about a completion: a trainer would leave their rewards out without a word."""
    unjudged = Counter(
        (score.verdict, plain((score.reason or "").partition("\n")[0]))
        for score in scores
        if score.result is not None and not score.result.judged
    )
    for (verdict, reason), count in unjudged.items():
        _log.warning("%d of %d completions have no reward, because %s: %s", count, len(scores), MEND[verdict], reason)


def _is_candidates_fault(error: CallerError) -> bool:
    """Whether every field at fault belongs to the candidate. A contract's arguments come from the data set."""
    paths = [each.path for each in error.fields]
    return bool(paths) and all(path[:1] == ("custom_kernel",) and path[1:3] != ("io", "args") for path in paths)
