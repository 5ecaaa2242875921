"""The builder's reply about code that a submission's build left in its folder. It runs nothing of the submission."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from backends.code_listings import MAX_CODES, CodeText, listings
from backends.triton import cache
from domain.listing import Form
from sandbox.protocol.channel import Message


def list_code(folder: Path, message: Message) -> Message:
    """Texts in the requested forms, reasons for those that are unavailable, and the data that Triton's kernels need."""
    results = listings(folder, [Form(form) for form in message["forms"]])
    return {
        "op": "listings",
        "found": [asdict(one) for one in results if isinstance(one, CodeText)],
        "kernels": cache.list_resources(folder, message["arch"], MAX_CODES),
        "lacking": [asdict(one) for one in results if not isinstance(one, CodeText)],
    }
