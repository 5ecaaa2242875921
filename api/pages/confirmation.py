"""Says in a sentence whether a job confirms the earlier one that it judged again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.pages import words
from domain.speed.confirmation import Finding

_SENTENCES = {
    Finding.CONFIRMED: "It confirms job {of}, which said {first} times.",
    Finding.LARGER: "It confirms job {of}, which said only {first} times.",
    Finding.SMALLER: "It does not confirm job {of} in full, which said {first} times.",
    Finding.VANISHED: "It does not confirm job {of}, which said {first} times.",
    Finding.ONLY_BOUNDS: "Whether it confirms the {first} times of job {of} is unknown: one of them is only a bound.",
    Finding.NOT_MEASURED: "It passes as job {of} did, without a speed-up to compare with its {first} times.",
}


def sentence(result: Mapping[str, Any]) -> str:
    """The sentence, with a blank before it; empty for a job that confirms none."""
    finding = result.get("confirmation")
    if not finding:
        return ""
    if not finding["verdict_stands"]:
        return f" It does not confirm job {finding['of']}, which passed."
    first = words.figure(finding["first_speedup"]["ratio"])
    text = _SENTENCES[Finding(finding["finding"])].format(of=finding["of"], first=first)
    together = finding["together"]
    if together is None:
        return f" {text}"
    low, high = words.figure(together["ci_low"]), words.figure(together["ci_high"])
    return f" {text} Both together support {words.figure(together['ratio'])} times (95 % interval {low} to {high})."
