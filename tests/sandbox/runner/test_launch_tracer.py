"""What a runner says that its calls launch: read strictly, whatever its profiler has become."""

from __future__ import annotations

import json
import math
import time

import pytest
import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import DeviceType

from backends.base import Artifact
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.protocol.channel import ProtocolError
from sandbox.protocol.launch_trace import CPU_OPERATORS, CUPTI, MAX_KERNELS, MAX_NAME, parse_trace
from sandbox.runner.launch_tracer import NoTrace, device_trace


def source(body: str, before: str = "") -> Kernel:
    return Kernel(f"import torch, os, sys, time\n{before}\ndef kernel_fn(x):\n    {body}\n", KernelType.TORCH)


def loaded(session, kernel, folder, seconds=30.0):
    runner = session(seconds=seconds)
    runner.load(kernel, Artifact(), None, 0)
    runner.probe([torch.randn(64, 64)], 2)
    return runner


def test_the_operators_of_a_call_with_their_share(session, folder):
    runner = loaded(session, source("return torch.softmax(x, -1) @ x.cos().t()"), folder)
    trace = runner.profile([torch.randn(64, 64)])
    assert (trace.source, trace.calls, trace.streams, trace.stray_us) == (CPU_OPERATORS, 2, None, None)
    launches = {one.name: one.launches for one in trace.kernels}
    assert launches["aten::_softmax"] == launches["aten::cos"] == launches["aten::mm"] == 2
    assert trace.distinct == len(trace.kernels) and trace.launches == sum(launches.values())
    assert 0 < sum(one.time_us for one in trace.kernels) == pytest.approx(trace.time_us)
    assert [one.time_us for one in trace.kernels] == sorted((one.time_us for one in trace.kernels), reverse=True)


def test_the_profiler_stays_out_of_what_the_kernel_printed(session, folder):
    runner = loaded(session, source("print('of its own'); return x * 2"), folder)
    runner.profile([torch.randn(64, 64)])
    assert torch.equal(runner.probe([torch.ones(2)], 1).outputs[0], torch.full((2,), 2.0))
    runner.runner.kill()
    lines = runner.runner.output.text().split()
    assert set(lines) == {"of", "its", "own"}


TAMPERED = """
import sandbox.runner.launch_tracer as tracing
def patched(*args, **kwargs):
    {}
tracing.profile = patched
"""


@pytest.mark.parametrize(
    ("tampering", "status", "says"),
    [
        (TAMPERED.format("raise RuntimeError('no CUPTI here')"), Status.RUNTIME_ERROR, "no CUPTI here"),
        (TAMPERED.format("os._exit(0)"), Status.CRASHED, "code 0"),
        (TAMPERED.format("import ctypes; ctypes.string_at(0)"), Status.CRASHED, "SIGSEGV"),
        (TAMPERED.format("time.sleep(60)"), Status.TIMEOUT, "timed out"),
        (
            "import sandbox.runner.runner\nsandbox.runner.runner.trace_launches = lambda *_: {'op': 'trace'}",
            Status.CRASHED,
            "no valid trace",
        ),
        ("import sandbox.runner.runner\nsandbox.runner.runner.trace_launches = lambda *_: None", Status.CRASHED, ""),
    ],
)
def test_a_profiler_that_was_tampered_with_is_a_fault_and_no_trace(session, folder, tampering, status, says):
    runner = loaded(session, source("return x * 2", tampering), folder)
    runner.set_deadline(time.monotonic() + 3.0)
    with pytest.raises(KernelFault) as caught:
        runner.profile([torch.randn(64, 64)])
    assert caught.value.status is status, caught.value.message
    assert says in caught.value.message
    runner.runner.kill()
    with pytest.raises(KernelFault, match="stopped before"):
        runner.profile([torch.randn(64, 64)])


SPIN_KERNEL = "at::cuda::(anonymous namespace)::spin_kernel(long)"


def event(name, start, end, stream=7, device=DeviceType.CUDA):
    return FunctionEvent(0, name, 0, float(start), float(end), device_type=device, device_resource_id=stream)


def seen(*events):
    """A trace of those between the two markers, among what else a profiler records."""
    return device_trace(
        [
            *events,
            event("cudaLaunchKernel", 0, 900, device=DeviceType.CPU),
            event("Context Sync", 0, 5000, stream=-1),
            event(SPIN_KERNEL, 0, 1000),
            event(SPIN_KERNEL, 2000, 2001),
        ]
    )


def test_the_markers_and_the_host_are_no_part_of_a_trace():
    told = seen(event("axpy", 1001, 1011), event("axpy", 1012, 1022), event("Memset (Device)", 1030, 1035))
    trace = parse_trace(told, is_cuda=True)
    assert [(one.name, one.launches, one.time_us) for one in trace.kernels] == [
        ("axpy", 2, 20.0),
        ("Memset (Device)", 1, 5.0),
    ]
    assert (trace.launches, trace.time_us, trace.distinct) == (3, 25.0, 2)
    assert (trace.streams, trace.stray_us) == (1, 0.0)


@pytest.mark.parametrize(
    ("start", "end", "stray_us"),
    [
        (1001, 1100, 0),  # after the first marker, over before the second begins: forked and joined
        (1900, 2000.5, 0),  # clocks of a trace are no better than that
        (10, 60, 50),  # begun while what the calls queued had to wait
        (1900, 2100, 200),  # not over when the calls' stream was
        (3000, 3100, 100),
    ],
)
def test_work_on_another_stream_is_stray_where_it_keeps_no_order(start, end, stray_us):
    trace = parse_trace(seen(event("axpy", 1001, 1101), event("side", start, end, stream=13)), is_cuda=True)
    assert (trace.streams, trace.stray_us) == (2, stray_us)


def test_a_spin_of_the_submissions_own_is_its_work():
    told = seen(event(SPIN_KERNEL, 1100, 1200), event(SPIN_KERNEL, 2500, 2600, stream=13))
    assert (told["launches"], told["stray_us"]) == (2, 100.0)


def test_no_trace_without_markers():
    for events in ([], [event("axpy", 0, 1)], [event(SPIN_KERNEL, 0, 1)]):
        with pytest.raises(NoTrace, match="CUPTI"):
            device_trace(events)


def test_the_longest_kernels_are_listed_and_the_others_counted():
    told = seen(*(event(f"kernel_{n}", 1001, 1002 + n) for n in range(100)))
    trace = parse_trace(told, is_cuda=True)
    assert len(trace.kernels) == MAX_KERNELS and trace.kernels[0].name == "kernel_99"
    assert (trace.distinct, trace.launches, trace.time_us) == (100, 100, sum(range(1, 101)))


def answer(**changed):
    kernel = {"name": "axpy", "launches": 2, "time_us": 7.5}
    whole = {
        "op": "trace",
        "source": CUPTI,
        "calls": 2,
        "kernels": [kernel],
        "launches": 2,
        "time_us": 7.5,
        "distinct": 1,
        "streams": 1,
        "stray_us": 0.0,
    }
    return whole | changed


def test_a_trace_is_read_and_its_names_are_cut():
    trace = parse_trace(answer(kernels=[{"name": "n" * 10_000, "launches": 2, "time_us": 7}]), is_cuda=True)
    assert trace.kernels[0].name == "n" * MAX_NAME and trace.kernels[0].time_us == 7.0
    assert (trace.streams, trace.stray_us) == (1, 0.0)


@pytest.mark.parametrize(
    "changed",
    [
        {"source": CPU_OPERATORS},
        {"source": None},
        {"kernels": None},
        {"kernels": {}},
        {"kernels": ["axpy"]},
        {"kernels": [{"name": 7, "launches": 1, "time_us": 1.0}]},
        {"kernels": [{"name": "a", "launches": 1}]},
        {"kernels": [{"name": "a", "launches": True, "time_us": 1.0}]},
        {"kernels": [{"name": "a", "launches": -1, "time_us": 1.0}]},
        {"kernels": [{"name": "a", "launches": 1.5, "time_us": 1.0}]},
        {"kernels": [{"name": "a", "launches": 1, "time_us": -1.0}]},
        {"kernels": [{"name": "a", "launches": 1, "time_us": math.nan}]},
        {"kernels": [{"name": "a", "launches": 1, "time_us": math.inf}]},
        {"kernels": [{"name": "a", "launches": 1, "time_us": "1"}]},
        {"kernels": [{"name": "a", "launches": 1, "time_us": 10**400}]},
        {"kernels": [{"name": str(n), "launches": 1, "time_us": 1.0} for n in range(MAX_KERNELS + 1)]},
        {"calls": 0},
        {"calls": 10**12},
        {"launches": None},
        {"time_us": math.nan},
        {"time_us": 1e300},
        {"distinct": 0},
        {"streams": 1.0},
        {"stray_us": None},
    ],
)
def test_what_is_no_trace_is_refused(changed):
    crossed = json.loads(json.dumps(answer(**changed)))
    with pytest.raises(ProtocolError):
        parse_trace(crossed, is_cuda=True)


def test_products_are_counted_by_the_dtype_they_are_done_in(session, folder):
    runner = loaded(session, source("return (x @ x + (x.bfloat16() @ x.bfloat16()).float()).cos()"), folder)
    assert runner.flops([torch.randn(64, 32).t() @ torch.randn(64, 32)]) == {
        "float32": 2.0 * 32**3,
        "bfloat16": 2.0 * 32**3,
    }
    convolution = "w = torch.ones(4, 3, 3, 3); return torch.conv2d(x, w, padding=1)"
    runner = session()
    runner.load(source(convolution), Artifact(), None, 0)
    assert runner.flops([torch.randn(2, 3, 8, 8)]) == {"float32": 2.0 * 2 * 8 * 8 * 4 * 3 * 9}


@pytest.mark.parametrize(
    "count",
    ["{'float32': float('nan')}", "{'float32': -1}", "{'float32': 10**30}", "[1]", "{str(n): n for n in range(99)}"],
)
def test_a_forged_count_is_none(session, folder, count):
    tampering = f"import sandbox.runner.runner\nsandbox.runner.runner.count_flops = lambda call: {count}"
    assert loaded(session, source("return x @ x", tampering), folder).flops([torch.randn(64, 64)]) is None


def test_a_call_that_cannot_be_counted_is_none_and_the_runner_lives(session, folder):
    body = "\n    if type(x.cos()) and torch.utils._python_dispatch._len_torch_dispatch_stack(): raise ValueError\n"
    runner = loaded(session, source(body + "    return x @ x"), folder)
    assert runner.flops([torch.randn(8, 8)]) is None
    assert runner.probe([torch.randn(8, 8)], 1).returned
