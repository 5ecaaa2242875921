"""The original service's client, call by call, for programs that were written for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from kernel_eval_client.client import Client
from kernel_eval_client.contract import IOContract
from kernel_eval_client.flow import Retry
from kernel_eval_client.kernel import Kernel
from kernel_eval_client.submission import KernelLike

KernelCode = Kernel
"""The original's name."""


class Answer(dict[str, Any]):
    """A response with both forms of access: `answer["a"]["b"]` and `answer.a.b`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the answer has no {name!r}; it has: {', '.join(self)}") from None


class KernelEvalClient:
    """The original's class. Its calls answer as the service does, kernel failures included.

    Differs on purpose: an HTTP error raises one of `kernel_eval_client.errors` (the original's was of the package
    requests); and `timeout` is the job's alone, as the time in the queue no longer counts.
    """

    def __init__(
        self,
        base_url: str = "http://localhost:8000",
        timeout: int = 120,
        api_key: str | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.timeout = timeout
        self._client = Client(base_url, api_key, retry=retry)

    @property
    def base_url(self) -> str:
        """The service's URL."""
        return self._client.address.url

    def evaluate(self, kernel: KernelLike, num_trials: int = 100, timeout: int | None = None) -> Answer:
        """The whole answer about one kernel."""
        result = self._client.evaluate(kernel, num_trials=num_trials, timeout=timeout or self.timeout)
        return _answer(result.raw)

    def compare(
        self,
        ref_kernel: KernelLike,
        custom_kernel: KernelLike,
        num_trials: int = 100,
        timeout: int | None = None,
        atol: float | None = None,
        rtol: float | None = None,
    ) -> Answer:
        """The whole answer about a kernel against a reference."""
        tolerances = {name: value for name, value in (("atol", atol), ("rtol", rtol)) if value is not None}
        seconds = timeout or self.timeout
        body = {"ref_kernel": ref_kernel, "custom_kernel": custom_kernel, "num_trials": num_trials, "timeout": seconds}
        return _answer(self._client.judge({**body, **tolerances}).raw)

    def health_check(self) -> Answer:
        """The body of /health."""
        return _answer(self._client.health())

    def get_job_status(self, job_id: str) -> Answer:
        """The job, with its result once there is one."""
        return _answer(self._client.job(job_id).raw)

    def get_stats(self) -> Answer:
        """The service's counters."""
        return _answer(self._client.stats())

    def cleanup_jobs(self) -> Answer:
        """Deletes the records of jobs that finished more than five minutes ago."""
        return _answer(self._client.cleanup_jobs())

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def __enter__(self) -> KernelEvalClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answer(wire: Mapping[str, Any]) -> Answer:
    return Answer({name: _open(value) for name, value in wire.items()})


def _open(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _answer(value)
    return [_open(each) for each in value] if isinstance(value, list) else value


def to_json(obj: Any, pretty: bool = False) -> str:
    """A contract, a kernel, or plain data as JSON."""
    return json.dumps(obj.to_dict() if hasattr(obj, "to_dict") else obj, indent=2 if pretty else None)


def save_to_file(obj: Any, filename: str | PathLike[str], pretty: bool = True) -> None:
    """`to_json` into a file."""
    Path(filename).write_text(to_json(obj, pretty), encoding="utf-8")


def load_from_file(filename: str | PathLike[str], obj_type: str = "IOContract") -> Any:
    """An `IOContract`, a `KernelCode`, or for any other `obj_type` the plain data."""
    wire = json.loads(Path(filename).read_text(encoding="utf-8"))
    readers = {"IOContract": IOContract.from_dict, "KernelCode": Kernel.from_dict}
    return readers[obj_type](wire) if obj_type in readers else wire
