"""Counters and sanitizer on a card: ten kernels of known character, planted errors, and that the timing is the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.listing import NoListing, ProfilerReport
from domain.request import Request
from domain.result import Report, Status
from tasks.evaluation.pipeline import run
from tasks.node import tool_lookup
from tests.flag_codes import codes
from tests.own_worker import own_worker
from tests.tasks.evaluation.test_pipeline_gpu import CUDA, IO, REFERENCE, TRITON, TRITON_IO, TYPES, kernel

pytestmark = pytest.mark.gpu

N = 1 << 24
BASIC = {"level": "basic", "metrics": []}


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    if tool_lookup.ncu() is None:
        pytest.skip("Nsight Compute is not here")
    with own_worker() as opened:
        assert opened.target.is_cuda
        yield opened


def judged(worker: Any, candidate: dict[str, Any], reference: dict[str, Any] | None = None, **more: Any) -> Report:
    wire = {"kernel": candidate, "reference": reference, "num_trials": 10, "timeout": 120} | more
    return run(Request.from_wire(wire), worker)


def cuda(body: str, n: int = N, grid: str = "cdiv(n, 256)", block: int = 256, **launch: Any) -> dict[str, Any]:
    spec = {"shape": [n], "dtype": "float32"}
    io = {
        "args": [
            {"name": "x", "type": "tensor", "tensor_spec": spec | {"init": {"kind": "randn"}}},
            {"name": "y", "type": "tensor", "role": "output", "tensor_spec": spec},
            {"name": "n", "type": "int", "value": n},
        ],
        "launch": {"grid": grid, "block": block} | launch,
    }
    head = "__global__ void k(const float* x, float* y, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    return {"kernel_type": "cuda", "source_code": f"{head}    {body}\n}}\n", "io": io}


def side(report: Report, role: str = "candidate") -> dict[str, Any]:
    assert report.outcome.status is Status.PASSED, report.outcome
    metrics = report.device_metrics
    assert metrics is not None and metrics["status"] == "measured", metrics
    found: dict[str, Any] = metrics[role]
    assert found["status"] == "measured", found
    return found


UNROLLED = 'float a[{n}]; _Pragma("unroll") for (int k = 0; k < {n}; k++) a[k] = x[(i + k * 997) % n]; ' + (
    'for (int r = 0; r < 8; r++) {{ _Pragma("unroll") for (int k = 0; k < {n}; k++) '
    "a[k] = fmaf(a[k], a[(k + 7) % {n}], a[(k + 31) % {n}]); }} "
    'float v = 0; _Pragma("unroll") for (int k = 0; k < {n}; k++) v += a[k]; if (i < n) y[i] = v;'
)
BANKS = (
    "__shared__ float s[32 * 32]; int t = threadIdx.x; float v = 0; for (int r = 0; r < 64; r++) {"
    " s[(t % 32) * 32 + t / 32] = x[i % n] + r; __syncthreads(); v += s[(t % 32) * 32 + (t / 32 + r) % 32];"
    " __syncthreads(); } if (i < n) y[i] = v;"
)
SHARED = (
    "extern __shared__ float b[]; b[threadIdx.x] = x[i % n]; __syncthreads(); float v = 0;"
    " for (int r = 0; r < 512; r++) v += b[(threadIdx.x + r) % blockDim.x] * x[(i + r * 4099) % n];"
    " if (i < n) y[i] = v;"
)
DIVERGENT = (
    "float v = x[i % n]; for (int lane = 0; lane < 32; lane++) if (threadIdx.x % 32 == lane)"
    " for (int r = 0; r < 200; r++) v = v * 1.0001f + __sinf(v); if (i < n) y[i] = v;"
)
PRODUCT = (
    "class Model(nn.Module):\n    def forward(self, x):\n        return x @ x"
    "\ndef get_inputs():\n    return [torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16)]\n"
)
CHARACTERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "copy at peak": (
        cuda("float4* to = (float4*)y; if (i < n / 4) to[i] = ((const float4*)x)[i];", 1 << 27, "cdiv(n, 1024)"),
        "memory_ceiling",
        "DRAM",
    ),
    "strided": (cuda("if (i < n) y[i] = x[(long)i * 32 % n + i / (n / 32)];"), "uncoalesced", "sectors"),
    "uncoalesced": (
        cuda("if (i < n) { int j = (i % 4096) * (n / 4096) + i / 4096; y[j] = x[j] * 2; }"), "uncoalesced", "sectors",
    ),
    "bank conflicts": (cuda(BANKS, 1 << 22, "cdiv(n, 1024)", 1024), "bank_conflicts", "32-way"),
    "few registers left": (cuda(UNROLLED.format(n=160), 1 << 20), "low_occupancy", "registers"),
    "much shared memory": (
        cuda(SHARED, 1 << 20, "cdiv(n, 128)", 128, shared_mem=200_000), "low_occupancy", "shared memory",
    ),
    "divergent": (cuda(DIVERGENT, 1 << 20), "divergent", "of 32 threads"),
    "spilling": (
        {
            **(spilling := cuda(UNROLLED.format(n=96), 1 << 20)),
            "source_code": spilling["source_code"].replace("void k", "void __launch_bounds__(256, 8) k"),
        },
        "spilling",
        "local memory",
    ),
    "tensor cores": (kernel(PRODUCT), "tensor_cores", "tensor cores"),
    "launch-bound": (cuda("if (i < n) y[i] = x[i] + 1;", 64), "launch_bound", "starting a kernel"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHARACTERS)
def test_the_character_of_a_kernel_is_named(worker: Any, name: str) -> None:
    source, rule, says = CHARACTERS[name]
    found = side(judged(worker, source, device_metrics=BASIC))
    told = [one for one in found["advice"] if one["rule"] == rule]
    assert told and says in told[0]["message"], (found["advice"], found["kernels"])
    assert told[0]["figures"]


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_counted_on_both_sides(worker: Any, name: str) -> None:
    source = {**TYPES[name], "source_code": TYPES[name]["source_code"].replace(" BUG", "")}
    report = judged(worker, source, REFERENCE, device_metrics=BASIC)
    candidate, reference = side(report), side(report, "reference")
    assert any("axpy" in one["name"] for one in candidate["kernels"]) or name == "torch", candidate["kernels"]
    assert all(one["memory"]["dram_percent"] is not None for one in candidate["kernels"] + reference["kernels"])
    metrics = report.device_metrics
    assert metrics is not None
    for key in ("original_device_metrics", "custom_device_metrics"):
        assert 0 < metrics[key]["speed_of_light"]["dram_throughput_pct"] <= 100
    assert report.reference is not None
    assert all(isinstance(one.profile, ProfilerReport | NoListing) for one in (report.outcome, report.reference))


def test_all_that_ncu_has_and_metrics_by_name(worker: Any) -> None:
    source = kernel(CUDA.replace(" BUG", ""), "cuda", io=IO)
    names = ["sm__inst_executed.sum", "no__such_metric.sum"]
    report = judged(worker, source, device_metrics={"level": "full", "metrics": ["sm__inst_executed.sum"]})
    (found,) = side(report)["kernels"]
    assert found["requested_metrics"]["sm__inst_executed.sum"]["value"] > 0
    assert isinstance(report.outcome.profile, ProfilerReport) and report.outcome.profile.size > 10_000
    found = side(judged(worker, source, device_metrics={"level": "basic", "metrics": names}))
    told = found["kernels"][0]["requested_metrics"]
    assert told["sm__inst_executed.sum"]["value"] > 0
    assert told.get("no__such_metric.sum") in (None, {"value": None, "unit": None}), told


def test_a_triton_kernel_that_is_wrong_is_counted_too(worker: Any) -> None:
    wrong = kernel(TRITON.replace(" BUG", " - 5"), "triton", io=TRITON_IO)
    report = judged(worker, wrong, REFERENCE, device_metrics=BASIC)
    assert report.outcome.status is Status.WRONG_RESULT
    assert report.device_metrics is not None and report.device_metrics["candidate"]["status"] == "measured"


BESIDE = "y[i + 1] = x[i] * 2;"
RACE = "__shared__ float s[256];\n    s[threadIdx.x] = x[i];\n    y[i] = s[(threadIdx.x + 1) % 256];"
LINES = {BESIDE: 3, RACE: 5}


@pytest.mark.parametrize(
    ("body", "tool", "kind"), [(BESIDE, "memcheck", "write of size 4"), (RACE, "racecheck", "Race reported")]
)
def test_a_planted_error_is_found_and_its_line_named(worker: Any, body: str, tool: str, kind: str) -> None:
    report = judged(worker, cuda(body, 1 << 12), sanitize=True)
    told = report.outcome.sanitizer
    assert told is not None and told["status"] == "findings", told
    assert {name: one["status"] for name, one in told["tools"].items()} == {
        name: "findings" if name == tool else "clean" for name in ("memcheck", "racecheck", "initcheck", "synccheck")
    }
    found = told["tools"][tool]["findings"]
    assert any(kind.lower() in one["kind"].lower() for one in found), found
    assert {(one["file"], one["line"]) for one in found} <= {("kernel.cu", LINES[body]), ("kernel.cu", LINES[body] - 1)}


def test_inline_cuda_and_triton_name_their_lines_too(worker: Any) -> None:
    past = {
        "torch_cuda": ("out[i] = x[i]", "out[i + 1] = x[i]"),
        "triton": ("tl.store(out + i", "tl.store(out + 1 + i"),
    }
    for name, (right, wrong) in past.items():
        source = TYPES[name]["source_code"].replace(" BUG", "")
        assert right in source
        report = judged(worker, {**TYPES[name], "source_code": source.replace(right, wrong)}, REFERENCE, sanitize=True)
        told = report.outcome.sanitizer
        assert told is not None and told["tools"]["memcheck"]["status"] == "findings", told
        found = told["tools"]["memcheck"]["findings"]
        assert all(one["line"] is not None and one["kernel"] and "axpy" in one["kernel"] for one in found), found


def test_a_sound_kernel_is_clean(worker: Any) -> None:
    for name in ("cuda", "triton", "torch"):
        source = {**TYPES[name], "source_code": TYPES[name]["source_code"].replace(" BUG", "")}
        told = judged(worker, source, REFERENCE, sanitize=True).outcome.sanitizer
        assert told is not None and told["status"] == "clean", told


PRYING = """
import os, socket

def got(attempt, *args):
    try:
        return bool(attempt(*args))
    except OSError:
        return False

def rights():
    lines = open("/proc/self/status").read().splitlines()
    told = [line.split() for line in lines if line.split(":")[0] in ("CapEff", "CapPrm", "NoNewPrivs", "Seccomp")]
    places = ("/root", "/home", "/etc", "/var", os.path.dirname(os.getcwd()), os.path.dirname(torch.__file__))
    files = ("/etc/passwd", "/proc/1/environ", "/proc/1/maps")
    return [
        os.getuid() == 0,
        sorted(line for line in told),
        [got(os.listdir, place) for place in places],
        [got(lambda: open(file).read()) for file in files],
        got(socket.socket, socket.AF_INET),
        sorted(os.listdir("/sys/class/net")) if got(os.listdir, "/sys/class/net") else None,
        [got(lambda: os.open(file, os.O_WRONLY)) for file in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern")],
    ]

EXPECTED = None

class Model(nn.Module):
    def forward(self, x):
        if EXPECTED is None:
            print("RIGHTS", rights())
        else:
            assert rights() == EXPECTED, (rights(), EXPECTED)
        return x * 2

def get_inputs():
    return [torch.randn(1 << 20, device="cuda")]
"""


def test_the_profiled_run_has_no_right_that_the_plain_one_lacks(worker: Any) -> None:
    plain = judged(worker, kernel(PRYING)).outcome
    told = next(line for line in plain.output.splitlines() if line.startswith("RIGHTS"))
    asked = kernel(PRYING.replace("EXPECTED = None", told.replace("RIGHTS", "EXPECTED =")))
    # Were they others beneath the profiler, the call would fail there, and nothing would be counted.
    found = side(judged(worker, asked, device_metrics=BASIC))
    assert found["kernels"]
    worker.teardown.join()
    assert [path for path in worker.folder.iterdir() if path.name.startswith("job-")] == []


def test_the_time_is_taken_before_and_is_the_same(worker: Any) -> None:
    source = kernel(CUDA.replace(" BUG", ""), "cuda", io=IO)
    plain = judged(worker, source, num_trials=50).outcome.timing
    counted = judged(worker, source, num_trials=50, device_metrics=BASIC).outcome.timing
    assert plain is not None and counted is not None
    assert counted.latency_ms == pytest.approx(plain.latency_ms, rel=0.05)
    # What disturbs a window from outside comes and goes; nothing else is to differ.
    disturbed = {FlagCode.WINDOWS_EXCLUDED, FlagCode.GPU_DISTURBED}
    after, before = (set(codes(timing.flags)) - disturbed for timing in (counted, plain))
    assert after == before
