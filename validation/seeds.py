"""Seeds derived from a job's secret, so that no submission can draw the inputs itself."""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(secret: int | None, *purpose: int | str) -> int:
    """Derives a 63-bit seed for one purpose: for a contract's tensor, the input set's number and the argument's
    position.

    Without a secret the seeds are the same in every job, which serves a replay but not a verdict.
    """
    text = "/".join(["" if secret is None else str(secret), *map(str, purpose)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
