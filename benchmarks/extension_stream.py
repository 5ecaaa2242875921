"""`python -m benchmarks.extension_stream`: a stream of different inline extensions through a service of its own.

The service builds as many at once as this machine has processors. For comparison, fresh interpreters build and judge
extensions one after the other with torch's own build.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import sys
from typing import Any
from uuid import uuid4

import httpx
from rich.table import Table

from benchmarks import overhead, stock_extension
from benchmarks.builds import SOURCES
from benchmarks.overhead import BenchmarkError
from domain.kernel import KernelType
from domain.settings import settings
from stack import devices, environment
from stack.devices import DeviceError
from stack.local_stack import StartError
from stack.redis_server import NoRedisServer, free_port
from stack.shutdown import Stop, stop_on_signals
from stack.terminal import Terminal

MOST_AT_ONCE = 64
"""Maximum of the setting MAX_WORKERS."""
BEGINS = '= """'
"""The start of a C++ text in the sources."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extension_stream", description=__doc__)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--stock", type=int, default=4, help="judged without the service")
    parser.add_argument("--within", type=float, default=400, help="seconds after which the others are cancelled")
    options = parser.parse_args()
    console = Terminal(soft_wrap=True)
    stop_on_signals()
    sources = different(options.jobs + options.stock)
    try:
        gpus = devices.chosen(devices.installed(), settings().gpu_device, environment.visible_devices())
        at_once = min(len(os.sched_getaffinity(0)), MOST_AT_ONCE)
        own = dataclasses.replace(settings().private(), port=free_port(), max_workers=at_once)
        with overhead.service(own) as (stack, client):
            overhead.warm_up(stack, client)
            measured = overhead.throughput(
                stack, client, [_body(one) for one in sources[: options.jobs]], options.within
            )
    except Stop:
        return 1
    except (StartError, DeviceError, NoRedisServer, BenchmarkError, httpx.HTTPError) as error:
        console.print(str(error), style="red")
        return 1
    table = Table("extensions", "jobs", "a minute", "device held", f"{at_once} at once, {len(gpus)} GPUs")
    table.add_row(
        "ours", str(measured.jobs), f"{60 * measured.per_second:.2f}", f"{measured.busy:.0%}", str(measured.verdicts)
    )
    if gpus:  # Without a GPU, an extension's CUDA cannot be called.
        stock = [stock_extension.judged(source) for source in sources[options.jobs :]]
        mean_s = statistics.mean(one.seconds for one in stock)
        needed = sum(one.device_s for one in stock) / sum(one.seconds for one in stock)
        table.add_row("stock, in turn", str(len(stock)), f"{60 / mean_s:.2f}", f"{needed:.0%} of a job", "")
    console.print(table)
    return 0


def different(count: int) -> list[str]:
    """`count` sources in thirty styles, each with unique C++."""
    styles = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("[a-z]*.py"))]
    return [
        style.replace(BEGINS, f"{BEGINS}// {uuid4()}\n") for style in itertools.islice(itertools.cycle(styles), count)
    ]


def _body(source: str) -> dict[str, Any]:
    return {"kernel": {"source_code": source, "kernel_type": KernelType.TORCH_CUDA.value}, "budget": "quick"}


if __name__ == "__main__":
    sys.exit(main())
