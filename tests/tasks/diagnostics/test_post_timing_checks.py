"""What is asked after the verdict: told where it was asked for, and powerless against verdict and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from domain.fault import InfrastructureFault
from domain.flags.codes import FlagCode
from domain.request import Request
from domain.result import Report, Status
from profiling.gpu.measured_peaks import UNKNOWN, Ceilings
from tasks.diagnostics import post_timing_checks
from tasks.evaluation.pipeline import run
from tasks.runtime.worker_context import WorkerContext
from tests.flag_codes import codes
from tests.own_worker import own_worker

INPUTS = "\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
PRODUCT = "class Model(nn.Module):\n    def forward(self, x):\n        return (x @ x).cos()" + INPUTS


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerContext]:
    with own_worker() as opened:
        yield opened


def kernel(source: str, kernel_type: str = "torch", **more: Any) -> dict[str, Any]:
    return {"source_code": source, "kernel_type": kernel_type, **more}


def judged(
    worker: WorkerContext, candidate: dict[str, Any], reference: dict[str, Any] | None = None, **more: Any
) -> Report:
    wire = {"kernel": candidate, "reference": reference, "num_trials": 2, "timeout": 60, "target_precision": 0.5} | more
    return run(Request.from_wire(wire), worker)


def candidate(before: str = "", expression: str = "(x @ x).cos()") -> dict[str, Any]:
    return kernel(
        f"import os, time\n{before}\nclass ModelNew(nn.Module):\n    def forward(self, x): return {expression}\n"
    )


def test_what_was_not_asked_for_is_not_done(worker: WorkerContext) -> None:
    body = judged(worker, candidate(), kernel(PRODUCT)).body("j")
    assert body["verdict"] == "passed"
    assert body["kernel_exec_result"]["launches"] is None and body["ref_result"]["launches"] is None


def test_both_sides_are_told(worker: WorkerContext) -> None:
    body = judged(worker, candidate(expression="torch.cos(torch.mm(x, x))"), kernel(PRODUCT), profile=True).body("j")
    assert body["verdict"] == "passed" and body["kernel_exec_result"]["timing"] is not None
    for side in ("kernel_exec_result", "ref_result"):
        launches = body[side]["launches"]
        assert launches["advisory"] is True and launches["source"] == "cpu_operators" and launches["flags"] == []
        rows = {row["name"]: row for row in launches["kernels"]}
        assert rows["aten::mm"]["launches"] == rows["aten::cos"]["launches"] == 1
        assert 0 < sum(row["share"] for row in rows.values()) <= 1.0 + 1e-9
        assert launches["device_time_us"] > 0 and launches["custom_share"] is None
    assert "profiler" not in body["kernel_exec_result"]["output"]


def test_a_wrong_kernel_is_told_too(worker: WorkerContext) -> None:
    outcome = judged(worker, candidate(expression="x @ x"), kernel(PRODUCT), profile=True).outcome
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.launches is not None and outcome.launches["source"] == "cpu_operators"


def test_a_kernel_that_never_came_so_far_says_so(worker: WorkerContext) -> None:
    for broken in (candidate("raise ValueError('mine')"), candidate(expression="undefined(x)")):
        report = judged(worker, broken, kernel(PRODUCT), profile=True)
        assert report.outcome.status in (Status.COMPILE_ERROR, Status.RUNTIME_ERROR)
        assert report.outcome.launches is not None and report.outcome.launches["status"] == "unavailable"
        assert "before it came to this" in report.outcome.launches["reason"]


TAMPERED = """
import sandbox.runner.launch_tracer as tracing
def patched(*args, **kwargs):
    {}
tracing.profile = patched
"""


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("raise RuntimeError('no CUPTI here')", "no CUPTI here"),
        ("os._exit(0)", "code 0"),
        ("os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("os.closerange(3, 100); time.sleep(60)", "closed its connection"),
        pytest.param("time.sleep(60)", "stopped after", marks=pytest.mark.slow),
        ("os.write(3, b'\\xff' * 100); time.sleep(60)", "malformed message"),
        ("import sandbox.runner.launch_tracer as t; raise t.NoTrace(os.getcwd() + ' is where')", "failed: "),
    ],
)
def test_a_profiler_in_other_hands_changes_neither_verdict_nor_time(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, does: str, says: str
) -> None:
    monkeypatch.setattr(post_timing_checks, "PROFILE_S", 8.0 if does == "time.sleep(60)" else 10.0)
    report = judged(worker, candidate(TAMPERED.format(does)), kernel(PRODUCT), profile=True)
    assert report.outcome.status is Status.PASSED, report.outcome
    assert report.outcome.timing is not None and report.outcome.timing.latency_ms > 0
    launches = report.outcome.launches
    assert launches is not None and launches["status"] == "unavailable" and launches["advisory"] is True
    assert says in launches["reason"] and str(worker.folder) not in launches["reason"]
    assert report.reference is not None and report.reference.launches is not None
    assert report.reference.launches["source"] == "cpu_operators"


FORGED = """
import sandbox.runner.runner
def forged(call, target):
    return {'op': 'trace', 'source': 'cpu_operators', 'calls': 1, 'kernels': ROWS,
            'launches': 1, 'time_us': 1.0, 'distinct': 99}
sandbox.runner.runner.trace_launches = forged
"""


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("[{'name': 'my_fast_kernel', 'launches': 1, 'time_us': 1.0}]", True),
        ("[{'name': 'x' * 10000000, 'launches': 1, 'time_us': 1e14}] * 64", True),
        ("[{'name': 'x', 'launches': 1, 'time_us': 1.0}] * 65", False),
        ("[{'name': 'x', 'launches': 1, 'time_us': float('nan')}]", False),
        ("[{'name': None, 'launches': 1, 'time_us': 1.0}]", False),
    ],
)
def test_a_forged_trace_is_told_as_advisory_or_not_at_all(worker: WorkerContext, rows: str, told: bool) -> None:
    """A forger may name its kernels as it likes; that is why the answer says what it is worth."""
    tampering = FORGED.replace("ROWS", rows).replace("10000000", "1000000")
    report = judged(worker, candidate(tampering), kernel(PRODUCT), profile=True)
    assert report.outcome.status is Status.PASSED and report.outcome.timing is not None
    launches = report.outcome.launches
    assert launches is not None and launches["advisory"] is True
    assert ("kernels" in launches) is told
    assert all(len(row["name"]) <= 256 and row["share"] <= 1.0 for row in launches.get("kernels", []))


@pytest.fixture
def slow_card(worker: WorkerContext) -> Iterator[Callable[[float], None]]:
    """Gives this machine the ceilings of a card with so many operations a second; taken back afterwards."""

    def believed(rate: float) -> None:
        worker._ceilings = Ceilings(flops={"float32": rate})

    yield believed
    worker._ceilings = UNKNOWN


@pytest.fixture
def unmeasured(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], Ceilings]], WorkerContext]:
    """The worker as if it had a card that was never measured, and is measured like that."""

    def measured_by(measure: Callable[[], Ceilings]) -> WorkerContext:
        monkeypatch.setattr(worker, "_ceilings", None)
        monkeypatch.setattr(worker, "_measurement_failed", False)
        monkeypatch.setattr(worker, "device", SimpleNamespace(is_cuda=True))
        monkeypatch.setattr(worker, "_load_ceilings", measure)
        return worker

    return measured_by


def test_what_could_not_be_measured_of_the_card_is_measured_by_the_next_job(
    unmeasured: Callable[[Callable[[], Ceilings]], WorkerContext],
) -> None:
    known = Ceilings(flops={"float32": 1e12})
    given: Iterator[Ceilings | InfrastructureFault] = iter(
        [InfrastructureFault("a fresh runner does not start"), known]
    )

    def measured() -> Ceilings:
        answer = next(given)
        if isinstance(answer, InfrastructureFault):
            raise answer
        return answer

    worker = unmeasured(measured)
    with pytest.raises(InfrastructureFault):
        worker.ceilings()
    assert worker.ceilings() == worker.ceilings() == known


def test_a_card_that_cannot_be_measured_fails_one_job_only(
    unmeasured: Callable[[Callable[[], Ceilings]], WorkerContext],
) -> None:
    def measured() -> Ceilings:
        raise InfrastructureFault("no room for a context")

    worker = unmeasured(measured)
    with pytest.raises(InfrastructureFault):
        worker.ceilings()
    assert worker.ceilings() == UNKNOWN


def test_a_time_too_short_for_the_references_operations_is_flagged_and_passes(
    worker: WorkerContext, slow_card: Callable[[float], None]
) -> None:
    slow_card(1.0)
    report = judged(worker, candidate(), kernel(PRODUCT), profile=True)
    assert report.outcome.status is Status.PASSED
    assert report.outcome.timing is not None and report.reference is not None and report.reference.timing is not None
    (flag,) = [flag for flag in report.outcome.timing.flags if flag.code is FlagCode.TOO_FAST_FOR_ARITHMETIC]
    assert "too short for the reference's 0.000524 GFLOP" in flag.message
    assert (flag.data["operations_flop"], flag.data["dtype"]) == (524288, "float32")
    assert FlagCode.TOO_FAST_FOR_ARITHMETIC in codes(report.reference.timing.flags)
    alone = judged(worker, kernel(PRODUCT), profile=True).outcome
    assert alone.timing is not None and FlagCode.TOO_FAST_FOR_ARITHMETIC in codes(alone.timing.flags)


def test_a_time_that_the_card_can_reach_is_not_flagged(
    worker: WorkerContext, slow_card: Callable[[float], None]
) -> None:
    slow_card(1e12)
    outcome = judged(worker, candidate(), kernel(PRODUCT), profile=True).outcome
    assert outcome.timing is not None and FlagCode.TOO_FAST_FOR_ARITHMETIC not in codes(outcome.timing.flags)


@pytest.mark.parametrize("body", ["x.view(-1)", "x.t()", "(x[1:], x.mT)"])
def test_an_answer_that_is_a_view_writes_nothing(worker: WorkerContext, body: str) -> None:
    worker._ceilings = Ceilings(memory_bytes_per_s=1.0)  # A byte that is written takes a second.
    try:
        alike = f"class Model(nn.Module):\n    def forward(self, x):\n        return {body}{INPUTS}"
        viewed = judged(worker, kernel(alike.replace("Model(", "ModelNew(")), kernel(alike))
        written = judged(worker, kernel(PRODUCT)).outcome
    finally:
        worker._ceilings = UNKNOWN
    assert viewed.reference is not None
    for outcome in (viewed.outcome, viewed.reference):
        assert outcome.timing is not None and FlagCode.TOO_FAST_FOR_MEMORY not in codes(outcome.timing.flags)
    assert written.timing is not None and FlagCode.TOO_FAST_FOR_MEMORY in codes(written.timing.flags)


def test_each_side_is_placed_beneath_the_rates(worker: WorkerContext, slow_card: Callable[[float], None]) -> None:
    slow_card(1e12)
    report = judged(worker, candidate(), kernel(PRODUCT), profile=True)
    assert report.reference is not None
    for outcome in (report.outcome, report.reference):
        assert outcome.timing is not None and outcome.roofline is not None
        assert outcome.roofline["bytes"] == 2 * 64 * 64 * 4  # x and its product with itself
        assert outcome.roofline["flops"] == {"float32": 2 * 64**3}
        rate = 2 * 64**3 / outcome.timing.latency_ms * 1e3
        assert outcome.roofline["flops_per_s"] == pytest.approx(rate)
        assert outcome.roofline["arithmetic_share"] == pytest.approx(rate / 1e12)
    uncounted = judged(worker, candidate(), kernel(PRODUCT), budget="quick").outcome
    assert uncounted.roofline is not None and uncounted.roofline["flops"] is None


def test_the_time_over_the_least_time_counts_operations_but_at_the_smallest_budget(
    worker: WorkerContext, slow_card: Callable[[float], None]
) -> None:
    slow_card(1e9)
    large = kernel(PRODUCT.replace("64, 64", "512, 512"))  # Long enough to be no bound on a CPU.
    found = judged(worker, candidate(), large).outcome
    assert found.timing is not None and found.headroom is not None
    assert found.headroom["ratio"] == pytest.approx(found.timing.latency_ms / (2 * 512**3 / 1e9 * 1e3))
    assert (found.headroom["bound"], found.headroom["basis"]) == ("arithmetic", "bytes_and_operations")
    quick = judged(worker, candidate(), large, budget="quick").outcome
    assert quick.timing is not None and quick.headroom is not None
    is_bound = FlagCode.UPPER_BOUND in codes(quick.timing.flags)  # On a busy host.
    assert quick.headroom["ratio"] is None
    assert quick.headroom["unavailable"] == ("time_is_a_bound" if is_bound else "no_work")


def test_a_count_that_only_places_the_time_is_no_flag(
    worker: WorkerContext, slow_card: Callable[[float], None]
) -> None:
    slow_card(1e9)
    tampering = "import os, sandbox.runner.runner\nsandbox.runner.runner.count_flops = lambda call: 1 / 0\n"
    outcome = judged(worker, kernel(tampering + PRODUCT)).outcome
    assert outcome.timing is not None and FlagCode.OPERATIONS_NOT_COUNTED not in codes(outcome.timing.flags)


def test_without_rates_there_is_no_place(worker: WorkerContext) -> None:
    outcome = judged(worker, kernel(PRODUCT), profile=True).outcome
    assert outcome.timing is not None and outcome.roofline is None


@pytest.mark.parametrize(
    "does", ["os._exit(0)", "time.sleep(60)", "return {'float32': -1}", "return {'float32': 1e400}"]
)
def test_a_count_that_fails_is_told_and_changes_nothing(
    worker: WorkerContext, slow_card: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    slow_card(1.0)
    monkeypatch.setattr(post_timing_checks, "OPERATIONS_S", 2.0)
    tampering = (
        f"import os, time, sandbox.runner.runner\ndef patch(call):\n    {does}\n"
        "sandbox.runner.runner.count_flops = patch\n"
    )
    outcome = judged(worker, kernel(tampering + PRODUCT), profile=True).outcome
    assert outcome.status is Status.PASSED and outcome.timing is not None
    assert FlagCode.TOO_FAST_FOR_ARITHMETIC not in codes(outcome.timing.flags)
    assert outcome.launches is not None and ("kernels" in outcome.launches) is does.startswith("return")
    assert codes(outcome.timing.flags).count(FlagCode.OPERATIONS_NOT_COUNTED) == 1
