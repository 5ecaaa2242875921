"""`python -m benchmarks.timing`: our times against others', against themselves, and against a slightly slower twin."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from domain.request import Request
from domain.result import Report, Status
from tasks.pipeline import run
from tasks.workbench import Workbench

SLOWER = 1.02
HAND_WINDOWS = 9


@dataclass(frozen=True)
class Case:
    """A kernel: what `forward` returns, what its input is, and how many calls a window by hand has."""

    name: str
    expression: str
    shape: str
    dtype: str
    calls: int

    def source(self, extra: str = "") -> dict[str, Any]:
        inputs = f"def get_inputs():\n    return [torch.randn({self.shape}, device='cuda', dtype=torch.{self.dtype})]\n"
        model = (
            f"class Model(nn.Module):\n    def forward(self, x):\n        {extra}\n        return {self.expression}\n"
        )
        return {"source_code": model + inputs, "kernel_type": "torch"}

    @property
    def function(self) -> Callable[[torch.Tensor], Any]:
        made: Callable[[torch.Tensor], Any] = eval(f"lambda x: {self.expression}", {"torch": torch})
        return made

    def inputs(self) -> torch.Tensor:
        shape = [int(size) for size in self.shape.split(",")]
        return torch.randn(shape, device="cuda", dtype=getattr(torch, self.dtype))


CASES = [
    Case("mul 1 k", "x * 2", "1024", "float32", 400),
    Case("softmax 1024²", "torch.softmax(x, -1)", "1024,1024", "float32", 300),
    Case("matmul 2048² bf16", "x @ x", "2048,2048", "bfloat16", 150),
    Case("mul 64 M", "x * 2", "64,1024,1024", "float32", 20),
    Case("matmul 8192² bf16", "x @ x", "8192,8192", "bfloat16", 5),
]


def judged(bench: Workbench, kernel: dict[str, Any], reference: dict[str, Any] | None, trials: int) -> Report:
    """One job; raises RuntimeError when the kernel does not pass."""
    wire = {"kernel": kernel, "reference": reference, "num_trials": trials, "timeout": 120}
    report = run(Request.from_wire(wire), bench, lambda stage: None, lambda: False)
    if report.outcome.status is not Status.PASSED or report.outcome.timing is None:
        raise RuntimeError(f"{report.outcome.status}: {report.outcome.message}")
    return report


def by_hand(case: Case) -> float:
    """Back-to-back calls on inputs of their own after a flush, one pair of events around all, behind a sleep; in ms."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    inputs = [case.inputs() for _ in range(case.calls)]
    case.function(inputs[0])
    taken = []
    for _ in range(HAND_WINDOWS):
        flush.zero_()
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        kept = [case.function(one) for one in inputs]
        end.record()
        torch.cuda.synchronize()
        taken.append(float(start.elapsed_time(end)) / case.calls)
        del kept
    return statistics.median(taken)


def do_bench(case: Case) -> float:
    """triton.testing.do_bench's median: events around each single call, its own cost included; in ms."""
    from triton.testing import do_bench as bench

    inputs = case.inputs()
    return float(bench(lambda: case.function(inputs), return_mode="median"))


def agreement(bench: Workbench, trials: int) -> Table:
    table = Table(
        "kernel", "ours µs", "by hand µs", "difference", "do_bench µs", title="Agreement", title_justify="left"
    )
    for case in CASES:
        timing = judged(bench, case.source(), None, trials).outcome.timing
        hand, usual = by_hand(case), do_bench(case)
        torch.cuda.empty_cache()
        ours = timing.trusted_ms if timing else 0.0
        table.add_row(
            case.name, *(f"{ms * 1e3:.2f}" for ms in (ours, hand)), f"{ours / hand - 1:+.1%}", f"{usual * 1e3:.2f}"
        )
    return table


def repeatability(bench: Workbench, trials: int, jobs: int) -> Table:
    table = Table(
        "kernel", "jobs", "median µs", "(p95 - p5) / median", "s a job", title="Repeatability", title_justify="left"
    )
    for case in CASES[:4]:
        started = time.monotonic()
        times = sorted(judged(bench, case.source(), None, trials).outcome.timing.trusted_ms for _ in range(jobs))  # type: ignore[union-attr]
        low, high = times[int(0.05 * (jobs - 1))], times[round(0.95 * (jobs - 1))]
        middle = statistics.median(times)
        spent = (time.monotonic() - started) / jobs
        table.add_row(case.name, str(jobs), f"{middle * 1e3:.3f}", f"{(high - low) / middle:.1%}", f"{spent:.2f}")
    return table


def comparisons(bench: Workbench, trials: int, jobs: int) -> Table:
    """A kernel with itself, and with itself after a launch that sleeps 2 % of its time (the launch comes on top)."""
    table = Table(
        "kernel", "against", "told apart", "sd of the ratio", "mean width", title="Comparisons", title_justify="left"
    )
    for case, slower in ((CASES[1], False), (CASES[2], False), (CASES[3], False), (CASES[3], True)):
        # 2 % of the kernel's own time, in cycles of a 1.98 GHz clock.
        extra = f"torch.cuda._sleep({int((SLOWER - 1) * by_hand(case) * 1.98e6)})" if slower else ""
        found = [judged(bench, case.source(extra), case.source(), trials).speedup for _ in range(jobs)]
        known = [speedup for speedup in found if speedup is not None]
        apart = sum(speedup.verdict != "not_distinguishable" for speedup in known)
        ratios = [speedup.ratio for speedup in known]
        width = statistics.mean(speedup.high - speedup.low for speedup in known)
        table.add_row(
            case.name,
            "itself and a sleep of 2 %" if slower else "itself",
            f"{apart} of {len(known)}",
            f"{statistics.stdev(ratios):.2%}",
            f"{width:.2%}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=30, help="jobs of each repetition")
    options = parser.parse_args()
    console = Console(width=120)
    bench = Workbench()
    try:
        if not bench.target.is_cuda:
            raise SystemExit("needs an NVIDIA GPU: the host's clock has nothing to be compared with")
        console.print(agreement(bench, options.trials))
        console.print(repeatability(bench, options.trials, options.jobs))
        console.print(comparisons(bench, options.trials, options.jobs))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
