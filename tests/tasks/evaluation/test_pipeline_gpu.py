"""The pipeline on a GPU: every kernel type right and wrong, gated windows, and recovery from what kernels do."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from domain.dtype import CODES, ITEM_BYTES
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from domain.job import Stage
from domain.request import Request
from domain.result import Report, Status
from profiling.gpu.measured_peaks import UNKNOWN
from profiling.gpu.timing_device import CACHED_SHARE
from profiling.results.samples import Samples
from profiling.stats.flags import EarlyStart
from profiling.stats.stopping_rule import QUEUE, TARGET_MS
from tasks.evaluation import multi_process
from tasks.evaluation.pipeline import run
from tasks.runtime.job_callbacks import JobCallbacks
from tasks.timing import timing_stage
from tasks.timing.gate_calibration import GROW, HELD_UP
from tests.own_worker import own_worker

pytestmark = pytest.mark.gpu

INPUTS = "\ndef get_inputs():\n    return [torch.randn(1024, 1024, device='cuda')]\n"
SOFTMAX = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)" + INPUTS


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    with own_worker() as opened:
        assert opened.target.is_cuda
        opened.ceilings()  # measured once for a card, in the first job else
        yield opened


def kernel(source: str, kernel_type: str = "torch", **more: Any) -> dict[str, Any]:
    return {"source_code": source, "kernel_type": kernel_type, **more}


def judged(
    worker: Any,
    candidate: dict[str, Any],
    reference: dict[str, Any] | None = None,
    progress: Callable[[Stage], None] = lambda stage: None,
    **more: Any,
) -> Report:
    wire = {"kernel": candidate, "reference": reference, "num_trials": 50, "timeout": 120, "atol": 1e-2, "rtol": 1e-2}
    return run(Request.from_wire(wire | more), worker, JobCallbacks(progress))


def tensor(name: str, shape: list[int], role: str = "input", dtype: str = "float32", **init: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"shape": shape, "dtype": dtype} | ({"init": init} if init else {})
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": spec}


def test_a_kernel_that_waits_for_the_device_in_late_calls_is_streamed(worker: Any) -> None:
    wait = "self.calls = getattr(self, 'calls', 0) + 1\n        if self.calls > 1500: torch.cuda.synchronize()"
    source = f"class Model(nn.Module):\n    def forward(self, x):\n        {wait}\n        return x + 1\n" + (
        "def get_inputs():\n    return [torch.randn(1024, device='cuda')]\n"
    )
    report = judged(worker, kernel(source), num_trials=50, target_precision=0.0)
    assert report.outcome.status is Status.PASSED, report.outcome.message
    timing = report.outcome.timing
    assert timing is not None and timing.method.startswith("streamed_window") and HELD_UP not in timing.method


def test_windows_of_a_kernel_alone_last_longer(worker: Any) -> None:
    product = "class Model(nn.Module):\n    def forward(self, x):\n        return x @ x" + INPUTS  # About 45 µs.
    alone = judged(worker, kernel(product), target_precision=0.05).outcome.timing
    assert alone is not None and alone.method == "gated_window"
    # What a rehearsal takes a call for may be half as much again.
    assert alone.calls_per_window * alone.latency_ms > 1.5 * TARGET_MS["cuda"]


@pytest.mark.parametrize("late_takes", [(True, False), (True, True)])
def test_delayed_setup_of_one_stream_is_measured_gated_once_more(
    worker: Any, monkeypatch: pytest.MonkeyPatch, late_takes: tuple[bool, bool]
) -> None:
    late = iter(late_takes)
    flag = Flag(FlagCode.WORK_BEFORE_CLOCK, "late")

    def early_starts(samples: Samples) -> EarlyStart:
        return EarlyStart(np.zeros(len(samples.elapsed_ms)), flag if next(late) else None)

    monkeypatch.setattr(timing_stage, "early_starts", early_starts)
    timing = judged(worker, kernel(SOFTMAX), target_precision=0.05).outcome.timing
    assert timing is not None and timing.method == "gated_window" and next(late, None) is None


def test_precise_takes_the_mean_of_several_processes(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_process, "DEVICE_S", math.inf)  # Else a slow host's third pair is its last.
    alone = judged(worker, kernel(SOFTMAX), target_precision=0.01, budget="precise").outcome.timing
    assert alone is not None and alone.method == "gated_window" and len(alone.per_process_ms) == 12
    assert alone.latency_ms == pytest.approx(statistics.mean(alone.per_process_ms))
    assert alone.relative_ci is not None and 0 < alone.relative_ci < 0.05
    report = judged(worker, kernel(SOFTMAX), kernel(SOFTMAX), target_precision=0.01, budget="precise")
    sides = [outcome.timing for outcome in (report.outcome, report.reference) if outcome is not None]
    assert [len(timing.per_process_ms) for timing in sides if timing is not None] == [4, 4]
    assert report.speedup is not None and report.speedup.ci_low < report.speedup.ratio < report.speedup.ci_high


def test_answers_of_two_types_are_queued_with_their_marks(worker: Any) -> None:
    source = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.max(x, -1)\n" + (
        "def get_inputs():\n    return [torch.randn(256, 1024, device='cuda')]\n"
    )
    timing = judged(worker, kernel(source), kernel(source), target_precision=0.05).outcome.timing
    assert timing is not None and (timing.method, timing.distribution) == ("gated_window", "events")


def test_a_chain_of_launches_fills_the_queue_with_fewer_calls(worker: Any) -> None:
    source = (
        "class Model(nn.Module):\n    def forward(self, x):\n        for _ in range(12):\n            x = x + 1\n"
        + ("        return x\ndef get_inputs():\n    return [torch.randn(4096, device='cuda')]\n")
    )
    timing = judged(worker, kernel(source), target_precision=0.05).outcome.timing
    assert timing is not None and timing.method == "gated_window"
    # Up to GROW times as many are not worth another rehearsal, as on a host that is slow to launch.
    assert QUEUE // 13 / GROW - 3 <= timing.calls_per_window <= QUEUE // 13 and timing.distribution == "events"


@pytest.mark.parametrize("known", [True, False])
def test_a_card_without_rates_says_that_no_time_was_looked_at(
    worker: Any, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(worker, "_ceilings", UNKNOWN)
    timing = judged(worker, kernel(SOFTMAX), num_trials=5).outcome.timing
    assert timing is not None
    assert (FlagCode.GPU_RATES_UNKNOWN in {flag.code for flag in timing.flags}) is not known


def test_answers_that_are_views_of_the_input_outlive_its_arena(worker: Any) -> None:
    views = "class Model(nn.Module):\n    def forward(self, x):\n        return x.t(), x[:, ::2], x[1:]" + INPUTS
    report = judged(worker, kernel(views), kernel(views), num_trials=5)
    assert report.outcome.status is Status.PASSED, report.outcome.message


@pytest.mark.parametrize("name", ITEM_BYTES)
def test_every_element_type_is_drawn_and_answered(worker: Any, name: str) -> None:
    whole = "torch.randint(0, 2, (64, 64), dtype=torch.uint8)"
    whole += f".view(torch.{name})" if name in CODES else f".to(torch.{name})"
    source = "class Model(nn.Module):\n    def forward(self, x, y):\n        return x.clone(), y.clone()\n" + (
        f"def get_inputs():\n    return [{whole}, {whole}.t()]\n"
    )
    report = judged(worker, kernel(source), kernel(source), num_trials=5, budget="quick")
    assert report.outcome.status is Status.PASSED, report.outcome.message


N = 1_000_003
IO = {
    "args": [
        tensor("x", [N], kind="randn"),
        tensor("y", [N], kind="randn"),
        tensor("out", [N], "output"),
        {"name": "n", "type": "int", "value": N},
        {"name": "scale", "type": "float", "value": 2.5},
    ],
    "launch": {"grid": "cdiv(n, 256)", "block": 256},
}
TRITON_IO = {
    "args": [*IO["args"], {"name": "BLOCK", "type": "int", "value": 256, "is_meta": True}],
    "launch": {"grid": "cdiv(n, BLOCK)", "num_warps": 4},
}
REFERENCE = kernel(
    "class Model(nn.Module):\n    def forward(self, x, y):\n        return x + 2.5 * y", io={"args": IO["args"][:2]}
)
CUDA = """
__global__ void axpy(const float* x, const float* y, float* out, int n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n BUG) out[i] = x[i] + scale * y[i];
}
"""
TRITON = """
import triton
import triton.language as tl

@triton.jit
def axpy(x, y, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n BUG
    tl.store(out + i, tl.load(x + i, mask=mask) + scale * tl.load(y + i, mask=mask), mask=mask)
"""
EXTENSION = (
    "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
    'cuda = r"""'
    + CUDA
    + """
torch::Tensor run(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    axpy<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n, 2.5f);
    return out;
}
\"\"\"
module = load_inline("axpy_ext", ["torch::Tensor run(torch::Tensor x, torch::Tensor y);"], [cuda], functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return module.run(x, y)
"""
)
MULTI = (
    TRITON
    + """
def main(x, y):
    out = torch.empty_like(x)
    axpy[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), 2.5, BLOCK=256)
    return out + 0
"""
)
HOST = """
extern "C" void solve(const float* x, const float* y, float* out, int n, float a) {
    axpy<<<(n + 255) / 256, 256 STREAM>>>(x, y, out, n, a);
}
"""
FILE = (
    "#include <torch/extension.h>"
    + CUDA
    + """
torch::Tensor run(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    axpy<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n, 2.5f);
    return out;
}
"""
)


def solve(host: str) -> dict[str, Any]:
    """A whole file whose host function launches."""
    return kernel(CUDA + host, "cuda", io={"args": IO["args"]}, metadata={"entry_point": "solve"})


CONSTANT = CUDA.replace("int n, float scale", "int n").replace("__global__", "__constant__ float scale;\n__global__")
"""The scale is drawn, and read from `__constant__` memory."""
CONSTANT_IO = {
    "args": [*IO["args"][:4], tensor("scale", [], kind="randn") | {"is_constant": True}],
    "launch": IO["launch"],
}


@pytest.mark.parametrize(("bug", "status"), [("", Status.PASSED), (" - 1", Status.WRONG_RESULT)])
def test_constants_are_fresh_inputs_of_every_timed_call(worker: Any, bug: str, status: Status) -> None:
    reference = "class Model(nn.Module):\n    def forward(self, x, y, scale):\n        return x + scale * y"
    given = kernel(CONSTANT.replace(" BUG", bug), "cuda", io=CONSTANT_IO)
    args = [each for each in CONSTANT_IO["args"] if each["name"] in ("x", "y", "scale")]
    report = judged(worker, given, kernel(reference, io={"args": args}))
    assert report.outcome.status is status, report.outcome
    assert bug or (report.outcome.timing is not None and report.outcome.timing.method == "gated_window")


TYPES = {
    "torch": kernel(
        "class ModelNew(nn.Module):\n    def forward(self, x, y):\n        return torch.add(x, y, alpha=2.5 BUG)"
    ),
    "triton": kernel(TRITON, "triton", io=TRITON_IO),
    "cuda": kernel(CUDA, "cuda", io=IO),
    "cuda, a whole file": solve(HOST.replace(" STREAM", "")),
    "torch_cuda, a whole file": kernel(FILE, "torch_cuda"),
    "torch_cuda": kernel(EXTENSION, "torch_cuda"),
    "multi_kernel": kernel(MULTI, "multi_kernel", io={"args": IO["args"][:2]}, metadata={"entry_point": "main"}),
}


def variant(name: str, bug: str) -> dict[str, Any]:
    return TYPES[name] | {"source_code": TYPES[name]["source_code"].replace(" BUG", bug)}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_right_is_timed_in_gated_windows(worker: Any, name: str) -> None:
    report = judged(worker, variant(name, ""), REFERENCE)
    assert report.outcome.status is Status.PASSED, report.outcome
    timing = report.outcome.timing
    assert timing is not None and timing.method == "gated_window", timing
    # Three streams of 4 MB at 4.3 TB/s are 2.8 µs; a launch and a cold cache cannot make 1 ms of it.
    assert 0.001 < timing.latency_ms < 1.0
    assert report.speedup is not None
    headers = report.outcome.build.get("headers") or []
    assert bool(headers) is (name.startswith("torch_cuda") or name == "cuda, a whole file")
    assert all(": lean" in told for told in headers) or name.startswith("cuda"), headers


@pytest.mark.parametrize("name", TYPES)
def test_every_type_wrong_in_its_last_element_is_wrong(worker: Any, name: str) -> None:
    bug = " + 0.1" if name == "torch" else " - 1"
    report = judged(worker, variant(name, bug), REFERENCE)
    assert report.outcome.status is Status.WRONG_RESULT, report.outcome
    assert report.outcome.timing is None


def test_a_side_stream_left_running_gains_nothing(worker: Any) -> None:
    source = (
        "side = None\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        global side\n"
        "        side = side or torch.cuda.Stream()\n        side.wait_stream(torch.cuda.current_stream())\n"
        "        out = torch.empty_like(x)\n        with torch.cuda.stream(side):\n"
        "            torch.cuda._sleep(1_000_000)\n            torch.softmax(x, -1, out=out)\n"
        "        JOIN\n        return out\n"
    )
    liar = judged(worker, kernel(source.replace("JOIN", "")), kernel(SOFTMAX))
    assert liar.outcome.status is Status.WRONG_RESULT, liar.outcome
    honest = judged(
        worker, kernel(source.replace("JOIN", "torch.cuda.current_stream().wait_stream(side)")), kernel(SOFTMAX)
    )
    assert honest.outcome.status is Status.PASSED, honest.outcome
    assert honest.outcome.timing is not None and honest.outcome.timing.latency_ms > 0.4  # 10^6 cycles at 2 GHz


@pytest.mark.parametrize("wait", ["", "cudaStreamSynchronize(side);"])
def test_a_host_function_gains_nothing_by_a_stream_of_its_own(worker: Any, wait: str) -> None:
    side = "static cudaStream_t side = nullptr;\n    if (!side) cudaStreamCreateWithFlags(&side, FLAG);\n    axpy"
    host = HOST.replace("axpy", side, 1).replace(" STREAM", ", 0, side").replace(");\n}", f");\n    {wait}\n}}")
    flag = "cudaStreamDefault" if wait else "cudaStreamNonBlocking"
    given = solve(host.replace("FLAG", flag))
    given["source_code"] = given["source_code"].replace(" BUG", "")
    outcome = judged(worker, given, REFERENCE).outcome
    if wait:
        assert outcome.status is Status.PASSED, outcome
    if outcome.status is Status.PASSED:
        assert outcome.timing is not None and outcome.timing.latency_ms > 0.001  # As above, for 12 MB.
    else:
        assert outcome.status is Status.WRONG_RESULT, outcome


def test_a_kernel_that_waits_for_the_device_is_streamed_and_it_is_said(worker: Any) -> None:
    source = "class Model(nn.Module):\n    def forward(self, x):\n        return x * x.sum().item()" + INPUTS
    timing = judged(worker, kernel(source)).outcome.timing
    # How its null windows count may follow, by what they took on the day.
    assert timing is not None and timing.method.split(";")[0] == "streamed_window"


def test_the_clock_is_the_referees(worker: Any) -> None:
    source = (
        "torch.cuda.Event.elapsed_time = lambda self, other: 1e-6\ntorch.cuda.synchronize = lambda *a: None\n"
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        torch.cuda._sleep(1_000_000)\n"
        "        return torch.softmax(x, -1)\n"
    )
    outcome = judged(worker, kernel(source), kernel(SOFTMAX)).outcome
    if outcome.status is Status.PASSED:
        assert outcome.timing is not None and outcome.timing.latency_ms > 0.4
        assert outcome.timing.flags
    else:
        assert outcome.status is Status.WRONG_RESULT


DEADLY = {
    "segfault": ("import ctypes\ndef kernel_fn(x):\n    ctypes.string_at(0)", Status.CRASHED, 120),
    "device hang": ("def kernel_fn(x):\n    torch.cuda._sleep(1 << 60)\n    return x", Status.TIMEOUT, 5),
    "host hang": ("def kernel_fn(x):\n    while True: pass", Status.TIMEOUT, 5),
    "device memory": ("def kernel_fn(x):\n    return torch.empty(1 << 40, device='cuda')", Status.OUT_OF_MEMORY, 120),
    "exit": ("import os\ndef kernel_fn(x):\n    os._exit(0)", Status.CRASHED, 120),
}
ILLEGAL = """
__global__ void stray(float* x) { x[(1ll << 40) + threadIdx.x] = 1.0f; }
"""


def check_recovery(worker: Any) -> None:
    """That the next job is right within two seconds, and timed: how many windows that takes is the host's affair."""
    started, reached = time.monotonic(), dict[Stage, float]()

    def note(stage: Stage) -> None:
        reached[stage] = time.monotonic()

    outcome = judged(worker, kernel(SOFTMAX), progress=note, budget="quick").outcome
    assert outcome.status is Status.PASSED and outcome.timing is not None
    assert reached[Stage.TIME] - started < 2.0


@pytest.mark.parametrize("name", DEADLY)
def test_the_next_job_is_clean_within_two_seconds(worker: Any, name: str) -> None:
    source, status, timeout = DEADLY[name]
    judged(worker, kernel(SOFTMAX), budget="quick")
    outcome = judged(worker, kernel(source + INPUTS), timeout=timeout).outcome
    assert outcome.status is status, outcome
    check_recovery(worker)


def test_an_illegal_address_is_a_result_and_the_next_job_is_clean(worker: Any) -> None:
    report = judged(worker, kernel(ILLEGAL, "cuda", io={"args": [tensor("x", [256], "inout")]}))
    outcome = report.outcome
    assert outcome.status is Status.RUNTIME_ERROR, outcome
    assert "illegal" in f"{outcome.message}{outcome.log}".lower()
    # The driver may not tell its events in a container; where it does, it tells an error that is the kernel's.
    told = report.device.gpu_errors
    print(told)
    assert "unavailable" in told or not any(error["is_hardware_fault"] for error in told)
    check_recovery(worker)


def test_whoever_has_the_device_next_has_its_memory(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOFTMAX.replace("1024, 1024", "4096, 4096")  # Of which a window holds several gigabytes.
    rest, kept = worker.release_job_memory, []
    monkeypatch.setattr(worker, "release_job_memory", lambda: (rest(), kept.append(torch.cuda.memory_reserved())))
    report = judged(worker, kernel(source), kernel(source))
    assert report.outcome.status is Status.PASSED
    assert kept and max(kept) <= worker.device.memory // CACHED_SHARE


def test_a_kernel_is_as_fast_as_itself(worker: Any) -> None:
    report = judged(worker, kernel(SOFTMAX), kernel(SOFTMAX), num_trials=1000)
    assert report.speedup is not None
    assert 0.9 < report.speedup.ratio < 1.1, report


def test_a_device_without_room_for_a_context_is_waited_for(worker: Any) -> None:
    import torch

    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(free - (64 << 20), dtype=torch.uint8, device="cuda")
    (standby,) = worker.acquire_runners([worker._own_runners_folder()], lambda: False)
    del taken
    torch.cuda.empty_cache()
    try:
        launch_ms = standby.session.launch_ms()
        assert launch_ms is not None and 0 < launch_ms < 0.1
    finally:
        standby.session.close()


def test_a_job_may_wait_for_the_device_longer_than_a_context_takes(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = worker.acquire_runners

    def waited_long(*asked: Any, **how: Any) -> Any:
        standbys = warm(*asked, **how)
        for standby in standbys:
            standby.session.set_deadline(time.monotonic() - 1)
        return standbys

    monkeypatch.setattr(worker, "acquire_runners", waited_long)
    assert judged(worker, variant("cuda", "")).outcome.status is Status.PASSED
