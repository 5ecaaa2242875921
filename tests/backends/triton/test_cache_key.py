"""What Triton asks of its own files is asked once."""

import subprocess
import sys

import pytest

ASKED = """
import os, sys
from backends.triton import cache_key
cache_key.cache_identity(sys.argv[1])
from triton.backends.nvidia import compiler
from triton.runtime import build, cache
asked = [compiler.get_ptxas_version, build.platform_key, cache.triton_key]
assert [one.cache_info().currsize for one in asked] == [1, 1, 1]
if os.fork() == 0:
    compiler.get_ptxas_version(int(sys.argv[1].removeprefix("sm_").rstrip("a")))
    build.platform_key(), cache.triton_key()
    print([one.cache_info().misses for one in asked], flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_120"])
def test_a_process_forked_later_need_not_ask_again(arch: str) -> None:
    pytest.importorskip("triton")
    made = subprocess.run([sys.executable, "-c", ASKED, arch], capture_output=True, text=True, timeout=60)
    assert made.stdout == "[1, 1, 1]\n", made.stderr


def test_where_there_is_no_triton_nothing_is_learned() -> None:
    hidden = (
        "import sys; sys.modules['triton'] = None; "
        "from backends.triton import cache_key; cache_key.cache_identity('sm_90'); "
        "print([name for name in sys.modules if name.startswith('triton.')])"
    )
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
