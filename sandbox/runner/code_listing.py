"""A builder's answer about the code that a submission has left in its folder; nothing of the submission is run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from backends.code_listings import MAX_CODES, CodeText, listings
from backends.triton import cache
from domain.listing import Form
from sandbox.protocol.channel import Message


def listed(folder: Path, message: Message) -> Message:
    """The texts in the forms that are asked for, what cannot be had, and what Triton's kernels need."""
    told = listings(folder, [Form(form) for form in message["forms"]])
    return {
        "op": "listings",
        "found": [asdict(one) for one in told if isinstance(one, CodeText)],
        "kernels": cache.list_resources(folder, message["arch"], MAX_CODES),
        "lacking": [asdict(one) for one in told if not isinstance(one, CodeText)],
    }
