"""Honest kernels that look like exploits: every one is accepted, with nothing said against it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.exploits.cases import cases, check
from tests.exploits.corpus import Submission


@pytest.mark.parametrize(("submission", "device"), cases(honest=True))
def test_a_look_alike_is_accepted(court: Any, submission: Submission, device: str) -> None:
    check(court, submission, device)
