"""`python -m benchmarks.scaling [--jobs N] [--groups]`: throughput with one GPU, two, four, up to all of this machine.

Each number of GPUs has a service of its own, with one worker on each GPU and a batch of small jobs for each. Without a
GPU, the number of concurrent jobs varies instead: they share one device, and only their builds overlap.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
from rich.table import Table

from benchmarks import jobs, overhead
from benchmarks.overhead import BenchmarkError, Throughput
from domain.settings import Settings, settings
from stack import devices, environment
from stack.devices import DeviceError, Gpu
from stack.local_stack import StartError
from stack.redis_server import NoRedisServer, free_port
from stack.shutdown import Stop, stop_on_signals
from stack.terminal import Terminal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--jobs", type=int, default=overhead.MIXED, help="for each GPU, or of each service without one")
    parser.add_argument("--groups", action="store_true", help="the jobs of a training instead of small mixed ones")
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    options = parser.parse_args()
    console = Terminal(soft_wrap=True)
    stop_on_signals()
    by_count: dict[int, Throughput] = {}
    try:
        gpus = devices.chosen(devices.installed(), settings().gpu_device, environment.visible_devices())
        for count, own in _services(gpus):
            by_count[count] = _streamed(own, options.jobs * (count if gpus else 1), groups=options.groups)
            console.print(f"{count}: {by_count[count].per_second:.2f} a second")
    except Stop:
        return 1
    except (StartError, DeviceError, NoRedisServer, BenchmarkError, httpx.HTTPError) as error:
        console.print(str(error), style="red")
        return 1
    console.print(_table("GPUs" if gpus else "jobs at once", by_count))
    if options.out:
        options.out.write_text(
            json.dumps({count: dataclasses.asdict(one) for count, one in by_count.items()}, indent=2) + "\n",
            encoding="utf-8",
        )
    return 0


def numbers(most: int) -> list[int]:
    """Powers of two below `most`, and `most` itself."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def _services(gpus: list[Gpu]) -> Iterator[tuple[int, Settings]]:
    """Each number of GPUs, or of concurrent jobs, and the settings of its service."""
    for count in numbers(len(gpus) or os.cpu_count() or 1):
        own = dataclasses.replace(settings().private(), port=free_port())
        if gpus:
            yield count, dataclasses.replace(own, gpu_device=",".join(gpu.uuid for gpu in gpus[:count]))
        else:
            yield count, dataclasses.replace(own, max_workers=count)


def _streamed(own: Settings, count: int, *, groups: bool) -> Throughput:
    with overhead.service(own) as (stack, client):
        overhead.warm_up(stack, client)
        sent = jobs.groups(count, gpu=bool(stack.gpus), budget="quick") if groups else jobs.mixed(count)
        return overhead.throughput(stack, client, sent)


def _table(what: str, by_count: dict[int, Throughput]) -> Table:
    table = Table(what, "jobs", "seconds", "a second", "of one's", "devices held")
    first = by_count[min(by_count)].per_second
    for count, one in by_count.items():
        cells = (f"{one.seconds:.1f}", f"{one.per_second:.2f}", f"{one.per_second / first:.2f}", f"{one.busy:.0%}")
        table.add_row(str(count), str(one.jobs), *cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
