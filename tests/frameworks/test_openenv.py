"""OpenEnv: its own client talks to the environment of examples/rl over HTTP."""

from __future__ import annotations

import threading
import time

import pytest

from kernel_eval_client.suites import read
from tests.conftest import free_port
from tests.frameworks.conftest import NAME, example, package, reference_and_answer

pytestmark = pytest.mark.filterwarnings("ignore")


def test_openenv_is_asked_by_its_own_client(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package("openenv")
    import uvicorn
    from openenv.core import GenericEnvClient

    module = example("openenv_kernels")
    small = read("starter", small=True)
    monkeypatch.setattr(module, "read", lambda _: small)
    _, answer = reference_and_answer()
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(module.app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with GenericEnvClient(base_url=f"http://127.0.0.1:{port}").sync() as environment:
            begun = environment.reset(problem=NAME)
            assert begun.observation["problem"] == NAME and not begun.done
            wrong = environment.step({"completion": "no code"})
            assert wrong.reward == 0.0 and "no closed code block" in wrong.observation["feedback"]
            right = environment.step({"completion": answer})
            assert right.reward is not None and right.reward >= 1.0
            assert right.observation["feedback"].startswith("passed") and not right.done
            assert environment.step({"completion": "?"}).done
    finally:
        server.should_exit = True
        thread.join(20)
