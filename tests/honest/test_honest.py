"""Honest kernels that look like exploits: every one is accepted, with nothing said against it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.exploits.cases import cases
from tests.exploits.corpus import HONEST, Submission


@pytest.mark.parametrize(("submission", "device"), cases(HONEST))
def test_a_look_alike_is_accepted(court: Any, submission: Submission, device: str) -> None:
    if court.device != device:
        pytest.skip(f"a variant for the {device}")
    finding = court.judge(submission)
    assert finding.fooled is None, f"{finding.ended}\n{finding.fooled}"
