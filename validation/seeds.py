"""Seeds derived from a job's secret, so that no submission can draw the inputs itself."""

from __future__ import annotations

from hashlib import blake2b


def derived(secret: int | None, *purpose: int | str) -> int:
    """A seed of 63 bits for that purpose: for a contract's tensor the number of the input set and the argument's place.

    Without a secret the seeds are the same in every job: right for a replay, not for judging.
    """
    text = "/".join(["" if secret is None else str(secret), *map(str, purpose)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
