"""The HTTP side stays light: it must start on a machine without a GPU library, and fast."""

from __future__ import annotations

import subprocess
import sys


def test_no_gpu_library_is_imported() -> None:
    code = (
        "import sys, api; api.create_app().test_client().get('/openapi.json');"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "api" in loaded
    assert not loaded & {"torch", "triton", "cupy", "cuda", "numpy"}
