"""`doctor`: checks whether the service would judge a kernel now, and names a fix for each problem."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kernel_eval_client.cli.exits import Exit
from kernel_eval_client.cli.session import Session
from kernel_eval_client.client import Client
from kernel_eval_client.errors import KernelEvalError, KeyRefused
from kernel_eval_client.kernel import Kernel, KernelType
from kernel_eval_client.submission import Submission

OK, WARNING, FAILED = "ok", "warning", "failed"
MARKS = {OK: ("ok     ", "green"), WARNING: ("warning", "yellow"), FAILED: ("failed ", "bold red")}
JUDGE_S = 120.0

TINY = """
import torch

def kernel_fn(x):
    return x * 2

def get_inputs():
    return [torch.randn(64)]
"""


@dataclass(frozen=True)
class Check:
    """One check: its state (ok, warning or failed), a line about what it found, and the fix for a problem."""

    name: str
    state: str
    detail: str
    fix: str = ""


def doctor(session: Session, arguments: argparse.Namespace) -> Exit:
    """Runs and prints every check. A service that does not answer ends them after the first."""
    checks = []
    for check in examine(session.client, judge=not arguments.quick):
        checks.append(check)
        if not session.as_json:
            mark, style = MARKS[check.state]
            session.out.say((mark, style), f"  {check.name:<10} {check.detail}")
            if check.fix:
                session.out.say(f"{'':21}{check.fix}", style="dim")
    failed = any(check.state == FAILED for check in checks)
    if session.as_json:
        session.write({"healthy": not failed, "checks": [asdict(check) for check in checks]})
    if any(check.state == FAILED and check.name == "key" for check in checks):
        return Exit.USAGE
    return Exit.SERVICE if failed else Exit.PASSED


def examine(client: Client, *, judge: bool) -> Iterator[Check]:
    """Yields each check when it is done. `judge` includes the judgement of a small kernel, which may take minutes."""
    url = client.address.url
    try:
        health = client.health()
    except KernelEvalError as error:
        fix = "Start it (`make serve`), or name another one: --url, or KERNEL_EVAL_URL."
        yield Check("service", FAILED, f"{url} does not answer as one: {error}", fix)
        return
    yield Check("service", OK, f"{url} answers")
    key = _key(client)
    yield key
    if key.state == FAILED:
        return
    yield _version(client)
    components = list(_components(health)) if "broker" in health else []
    yield from components
    if health.get("status") == "healthy":
        if judge:
            yield _judging(client)
    elif not any(check.state == FAILED for check in components):
        reasons = "; ".join(health.get("reasons") or ["the service gives the reason only to a caller with a key"])
        yield Check("judging", FAILED, f"the service is not healthy: {reasons}", "Try again when it is back.")


def _key(client: Client) -> Check:
    try:
        next(client.jobs(limit=1), None)
    except KeyRefused as error:
        fix = (
            "Set KERNEL_EVAL_URL to this URL too: KERNEL_EVAL_API_KEY belongs to another one and was not sent."
            if client.address.withheld
            else "Set KERNEL_EVAL_API_KEY; the service's owner makes keys: `python -m stack keys add NAME --scope …`."
        )
        return Check("key", FAILED, str(error), fix)
    except KernelEvalError as error:
        return Check("key", FAILED, str(error), "The service cannot read its jobs: its log has the cause.")
    return Check("key", OK, "accepted" if client.address.api_key else "none is needed")


def _version(client: Client) -> Check:
    from importlib.metadata import PackageNotFoundError, version

    try:
        client_version = version("kernel-eval-client")
    except PackageNotFoundError:
        client_version = "not installed"
    try:
        service_version = client.document().get("info", {}).get("version", "unknown")
    except KernelEvalError as error:
        return Check("version", WARNING, f"client {client_version}; the service does not give its version: {error}")
    return Check("version", OK, f"service {service_version}, client {client_version}")


def _components(health: Mapping[str, Any]) -> Iterator[Check]:
    workers = health.get("workers") or []
    if health["broker"] == "ready":
        yield from _broker(health.get("broker_warnings") or ())
    else:
        reasons = "; ".join(health.get("reasons") or ["not ready"])
        yield Check("broker", FAILED, reasons, "On the service's machine: start Redis, or check CELERY_BROKER_URL.")
        return
    if not workers:
        fix = "On the service's machine: `make serve`, or read its log, LOG_DIR/cuda_eval_server.log."
        yield Check("workers", FAILED, "no worker sends heartbeats", fix)
        return
    yield from _quarantine(workers)
    for worker in workers:
        for failure in worker.get("failing") or ():
            yield Check("workers", WARNING, f"{worker['name']}: {failure}", "Its log has more.")
    yield _gpus(health, workers)
    yield from _toolchain(workers)
    yield from _sandbox(workers)


def _broker(warnings: Collection[Mapping[str, Any]]) -> Iterator[Check]:
    for warning in warnings:
        fix = f"Change the settings of Redis ({warning.get('code')}); the service judges jobs meanwhile."
        yield Check("broker", WARNING, str(warning.get("message")), fix)
    if not warnings:
        yield Check("broker", OK, "ready")


def _quarantine(workers: list[dict[str, Any]]) -> Iterator[Check]:
    idle = [worker for worker in workers if worker.get("quarantined")]
    for worker in idle:
        fix = "Check the GPU with nvidia-smi; the worker tries again by itself."
        state = FAILED if len(idle) == len(workers) else WARNING
        yield Check("workers", state, f"{worker['name']} takes no jobs: {worker['quarantined']}", fix)
    if len(idle) < len(workers):
        names = ", ".join(f"{w['name']} ({w.get('max_workers')} at once)" for w in workers if w not in idle)
        yield Check("workers", OK, names)


def _gpus(health: Mapping[str, Any], workers: list[dict[str, Any]]) -> Check:
    if health.get("gpu_available"):
        cards = ", ".join(sorted({str(worker.get("gpu_name")) for worker in workers if worker.get("gpu_available")}))
        return Check("gpu", OK, f"{health.get('gpu_count')}: {cards}")
    fix = (
        "For meaningful times start the service where `nvidia-smi` shows a GPU, and check that GPU_DEVICE and"
        " CUDA_VISIBLE_DEVICES do not hide it."
    )
    return Check("gpu", WARNING, "none: kernels run on the CPU, and CUDA is compiled but not run", fix)


def _toolchain(workers: list[dict[str, Any]]) -> Iterator[Check]:
    for worker in workers:
        versions = worker.get("versions") or {}
        missing = [name for name in ("torch", "triton") if name not in versions]
        installed = ", ".join(f"{name} {versions[name]}" for name in sorted(versions)) or "versions unknown"
        fix = f"Install {' and '.join(missing)} where {worker['name']} runs: `make` does." if missing else ""
        yield Check("toolchain", WARNING if missing else OK, f"{worker['name']}: {installed}", fix)


def _sandbox(workers: list[dict[str, Any]]) -> Iterator[Check]:
    for worker in workers:
        layers: Mapping[str, Mapping[str, Any]] = worker.get("sandbox") or {}
        if not layers:
            fix = "Give keys to people you trust only: this version of the service may not confine submissions."
            yield Check("sandbox", WARNING, f"{worker['name']} does not report its sandbox", fix)
            continue
        missing = {name: layer for name, layer in layers.items() if not layer.get("active")}
        names = ", ".join(name for name in layers if name not in missing)
        inactive = "; ".join(f"{name} is not active: {layer.get('detail')}" for name, layer in missing.items())
        fix = (
            "docs/security.md of the service says what each layer needs, and how SANDBOX requires it."
            if missing
            else ""
        )
        yield Check("sandbox", WARNING if missing else OK, f"{worker['name']}: {inactive or names}", fix)


def _judging(client: Client) -> Check:
    tiny = Submission(Kernel(TINY, KernelType.TORCH), num_trials=1, timeout=60)
    try:
        result = client.judge(tiny, max_wait_s=JUDGE_S)
    except KernelEvalError as error:
        return Check("judging", FAILED, str(error), "The service's log has the cause: LOG_DIR/cuda_eval_server.log.")
    if not result.passed:
        fix = "PyTorch does not work where the worker runs; its log has more."
        return Check("judging", FAILED, f"the verdict of x * 2 is {result.verdict}: {result.error}", fix)
    return Check("judging", OK, f"x * 2 passes on {result.environment.get('gpu_name') or 'the CPU'}")
