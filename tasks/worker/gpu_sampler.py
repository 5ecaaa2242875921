"""`python -m tasks.worker.gpu_sampler UUID PID`: prints one line of JSON about a card every few seconds.

It is a process of its own because NVML does not survive a fork, and the worker's main process forks pool children at
any time. It creates no context on the card, and ends with the process PID that started it.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from threading import Thread
from typing import Any

import pynvml

from profiling.gpu.monitor import CardMonitor, CardSample, card_handle, figure
from profiling.gpu.xid_errors import CardErrors
from sandbox.isolation.rlimits import die_with_parent

EVERY_S = 10.0
STALE_S = 3 * EVERY_S
"""Maximum age of a reading, in s: a card that no longer answers has no current temperature."""

log = logging.getLogger(__name__)


class CardSampler:
    """The newest reading of a card, for the worker's main process; restarts the sampler process if it ended.

    `command` starts that process; by default this module's program.
    """

    def __init__(self, card: str, command: Sequence[str] | None = None) -> None:
        self._command = command or [sys.executable, "-m", "tasks.worker.gpu_sampler", card, str(os.getpid())]
        self._process: subprocess.Popen[str] | None = None
        self._reading: dict[str, Any] | None = None
        self._read_at = 0.0

    def reading(self) -> dict[str, Any] | None:
        """The last line that `main` printed, parsed; None if it is older than STALE_S."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        return self._reading if time.monotonic() - self._read_at < STALE_S else None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            Thread(target=self._read_output, args=(self._process,), name="card sampler", daemon=True).start()
        except RuntimeError:
            self.stop()  # Without the thread nobody reads its output. The next reading starts it again.
            raise

    def _read_output(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        try:
            with process.stdout as lines:
                for line in lines:
                    self._parse(line)
        except Exception:
            log.exception("the output of the card sampler cannot be read; restarting it")
            process.kill()

    def _parse(self, line: str) -> None:
        try:
            reading = json.loads(line)
        except ValueError:
            log.warning("the card sampler printed: %s", line.strip())
            return
        if isinstance(reading, dict):
            self._reading, self._read_at = reading, time.monotonic()


class Card:
    """Reads a card's figures for JSON: those of `CardSample` and a few more. Unavailable figures are omitted."""

    def __init__(self, card: str) -> None:
        self._card = card
        self._monitor = CardMonitor(card)
        self._errors = CardErrors(card)
        self._xids: Counter[str] = Counter()

    def reading(self) -> dict[str, Any]:
        """One reading; `xids` counts the driver's reports by number since this process began. Never raises."""
        sample = self._monitor.sample()
        if not isinstance(sample, CardSample):
            return {"unavailable": sample.reason}
        errors = self._errors.take_new()
        if isinstance(errors, list):
            self._xids.update(str(error.xid) for error in errors)
        figures = {
            "sm_clock_mhz": sample.sm_clock_mhz,
            "memory_clock_mhz": sample.memory_clock_mhz,
            "temperature_c": sample.temperature_c,
            "power_w": sample.power_w,
            "power_limit_w": sample.power_limit_w,
            "memory_used_bytes": sample.memory_used_bytes,
            "ecc_uncorrected": sample.ecc_uncorrected,
            "reasons": sample.reasons,
            "xids": dict(self._xids) if isinstance(errors, list) else None,
            **self._more(),
        }
        return {name: value for name, value in figures.items() if value is not None}

    def _more(self) -> dict[str, Any]:
        handle = figure(card_handle, self._card)
        if handle is None:
            return {}
        memory = figure(pynvml.nvmlDeviceGetMemoryInfo, handle)
        busy = figure(pynvml.nvmlDeviceGetUtilizationRates, handle)
        return {
            "memory_bytes": None if memory is None else int(memory.total),
            "utilization_percent": None if busy is None else int(busy.gpu),
        }


def main() -> None:
    """Print readings until the process is killed."""
    die_with_parent(int(sys.argv[2]))
    card = Card(sys.argv[1])
    while True:
        print(json.dumps(card.reading()), flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
