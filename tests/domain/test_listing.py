"""A profiler's report as it is kept: packed, bounded, and told of."""

from __future__ import annotations

import random

from domain.listing import MAX_PROFILE_BYTES, MAX_PROFILE_PACKED, NoListing, ProfilerReport, unpack


def test_a_report_comes_back_byte_for_byte() -> None:
    content = bytes(range(256)) * 40
    report = ProfilerReport.of(content)
    assert isinstance(report, ProfilerReport) and unpack(report.packed) == content
    assert report.to_dict() == {"name": "profile.ncu-rep", "format": "ncu-rep", "kernel": None, "bytes": len(content)}


def test_one_that_is_too_large_says_so() -> None:
    unpackable = random.Random(1).randbytes(MAX_PROFILE_PACKED + 1)
    for content, size in ((bytes(MAX_PROFILE_BYTES + 1), "32 MiB"), (unpackable, "4 MiB compressed")):
        report = ProfilerReport.of(content)
        assert isinstance(report, NoListing)
        told = report.to_dict()
        assert (told["name"], told["format"]) == (None, "ncu-rep") and f"it has {size}, and" in told["unavailable"]
