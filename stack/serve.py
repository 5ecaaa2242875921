"""`make serve`: the stack in the foreground until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys

from domain.settings import Settings
from stack.background_output import BackgroundOutput
from stack.devices import DeviceError, Gpu
from stack.local_stack import StartError, running
from stack.redis_server import NoRedisServer
from stack.shutdown import Stop, stop_on_signals
from stack.terminal import Terminal

SLICE_S = 0.5


def serve(settings: Settings) -> int:
    """Runs until a signal asks to stop; returns 0 then, and 1 if the stack did not start."""
    # The stack also reads its processes' lines: were it to wait for its console, every process would wait for it.
    with BackgroundOutput(sys.stdout) as output:
        return _serve(settings, Terminal(soft_wrap=True, file=output))


def _serve(settings: Settings, console: Terminal) -> int:
    stop_on_signals()
    try:
        console.print("Starting Redis, the API and the workers ...")
        with running(settings, console) as stack:
            console.print(f"Ready: {stack.url} ({described(stack.gpus)}).", style="bold green")
            console.print("Ctrl-C finishes the jobs that run, and stops.", style="bold green")
            console.print(f"Try: curl {stack.url}/health    Logs: {settings.log_dir}/", style="green")
            while True:
                stack.tick(SLICE_S)
    except Stop:
        console.print("Stopped.")
        return 0
    except (StartError, DeviceError, NoRedisServer) as error:
        console.print(str(error), style="red")
        return 1


def described(gpus: list[Gpu]) -> str:
    return ", ".join(f"GPU {gpu.index}: {gpu.name}" for gpu in gpus) or "no GPU: kernels run on the CPU"
