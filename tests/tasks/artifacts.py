"""Listings and a report that has some, for the tests of what is kept of them."""

from __future__ import annotations

from dataclasses import replace

from domain.listing import Form, Listing, NoListing, ProfilerReport, pack
from domain.result import Report
from tests.tasks.example_jobs import report

TEXT = ".version 9.0\n// \N{GREEK SMALL LETTER MU} <b>&\n"
WHY_NO_REPORT = "ncu was stopped after 40 s"
WHY_NOT = "ttir is one of Triton's stages"


REPORT = b"NVR\0\xff not a text"


def listing(name: str, form: Form, text: str = TEXT) -> Listing:
    return Listing(name, name.partition(".")[0], form, len(text.encode()), pack(text))


def profiled() -> Report:
    """The same without texts: a report of the candidate, none of the reference."""
    given, kept = report(), ProfilerReport.of(REPORT)
    return replace(
        given,
        outcome=replace(given.outcome, profile=kept),
        reference=replace(given.outcome, profile=NoListing("ncu-rep", WHY_NO_REPORT)),
    )


def listed() -> Report:
    """A comparison with two texts of the candidate, one of the reference, and one that could not be had."""
    given = report()
    outcome = replace(
        given.outcome,
        listings=[
            listing("add.ptx", Form.PTX),
            listing("add.sass", Form.SASS, "EXIT ;"),
            NoListing(Form.TTIR, WHY_NOT),
        ],
    )
    reference = replace(given.outcome, listings=[listing("mul.ptx", Form.PTX, "of the reference")])
    return replace(given, outcome=outcome, reference=reference)
