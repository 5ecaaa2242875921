"""Why an engine does not run is one line, with the engine's own words."""

from __future__ import annotations

import pytest

from tests.compose.engine import failure_reason

DOCKERD = """time="2026-11-27T13:18:44Z" level=info msg="stopping"
failed to start daemon: Error initializing network controller: iptables failed: Permission denied
 (exit status 4)
"""
CONTAINER = """docker: Error response from daemon: OCI runtime create failed: operation not permitted: unknown.
time="2026-11-27T13:18:44Z" level=error msg="error waiting for container: context canceled"
"""


@pytest.mark.parametrize(
    ("text", "beginning", "end"),
    [
        (DOCKERD, "failed to start daemon: Error initializing", "Permission denied (exit status 4)"),
        (CONTAINER, "docker: Error response from daemon: OCI runtime create failed", "context canceled\""),
        ("first\nlast\n\n", "last", "last"),
        ("", "no message", "no message"),
    ],
)  # fmt: skip
def test_a_reason_isfailure_reason(text: str, beginning: str, end: str) -> None:
    line = failure_reason(text)
    assert line.startswith(beginning) and line.endswith(end) and "\n" not in line


def test_a_reason_is_cut() -> None:
    assert len(failure_reason("failed to start daemon: " + "x" * 5000)) == 400
