"""The client's event loop in a thread of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kernel_eval_client

WITHOUT_DESCRIPTORS = """
import resource
from kernel_eval_client.async_client import AsyncClient
from kernel_eval_client.background import Background
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    Background(lambda: AsyncClient("http://127.0.0.1:1")).__enter__()
except OSError as error:
    print(type(error).__name__)
"""


def test_where_no_event_loop_can_be_made_the_caller_hears_of_it_and_does_not_wait() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS],
        cwd=Path(kernel_eval_client.__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "OSError", done.stderr[-500:]
