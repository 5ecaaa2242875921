"""Counters and sanitizer findings as the client reads, prints and briefs them; whatever form they have."""

from __future__ import annotations

import argparse
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.paths import ROOT
from kernel_eval_client import Client, Kernel, KernelType, Result, Submission, errors
from kernel_eval_client.agents import brief, parts
from kernel_eval_client.cli import show
from kernel_eval_client.cli.main import main, parser
from kernel_eval_client.cli.options import options
from kernel_eval_client.cli.terminal import Terminal
from kernel_eval_client.device_metrics import in_words
from profiling.ncu import report as hardware_counters
from tests import device_answers
from tests.client import failing
from tests.client.test_mcp_material import FORGED, ours
from tests.client.test_service import TWICE

EVIL = "\x1b]0;mine\x07\x9b31m\n" + "\n".join(FORGED)
SOURCE = 'extern "C" __global__ void scale(float* x, int n) {\n  int i = threadIdx.x;\n  x[i + n] *= 2;\n}\n'


def result(metrics: Any = None, sanitizer: Any = None, *, verdict: str = "passed") -> Result:
    metadata = {"kernel_type": "cuda", "device_metrics": metrics}
    kernel = {
        "status": verdict, "compiled": True, "correctness": True, "metadata": metadata, "sanitizer": sanitizer,
    }  # fmt: skip
    return Result.from_dict({"job_id": "j", "verdict": verdict, "kernel_exec_result": kernel})


def printed(found: Result, source: str = "") -> str:
    written = io.StringIO()
    show.result(Terminal(written, 200), "scale.cu", source, found)
    return written.getvalue()


def test_figures_are_typed() -> None:
    found = result(device_answers.measured(reference=device_answers.side(device_answers.kernel("gemm"))))
    metrics = found.device_metrics
    assert metrics is not None and metrics.measured and metrics.candidate is not None
    assert (metrics.level, metrics.profiler, metrics.metrics) == ("basic", "ncu 2025.3.1.0", (device_answers.OFFSET,))
    (kernel,) = metrics.candidate.kernels
    assert (kernel.name, kernel.launches, kernel.share, kernel.bound) == ("softmax_rows", 2, 0.83, "memory")
    assert (kernel.sm_percent, kernel.memory_percent, kernel.dram_bytes_per_s) == (22.4, 91.2, 3.2e12)
    assert (kernel.achieved_occupancy, kernel.theoretical_occupancy, kernel.limited_by) == (71.5, 75.0, "registers")
    assert (kernel.stalls[0].reason, kernel.stalls[0].percent) == ("long_scoreboard", 61.0)
    assert [(one.name, one.value, one.unit) for one in kernel.requested_metrics] == [
        (device_answers.OFFSET, 9437184.0, "inst")
    ]
    assert kernel.raw["coalescing"]["sectors_per_load_request"] == 4.0
    assert metrics.candidate.advice[0].rule == "memory_ceiling" and metrics.candidate.kernels_omitted == 3
    assert [name for name, _ in metrics.sides] == ["candidate", "reference"]
    assert result().device_metrics is None and result().sanitizer is None
    assert found.to_dict()["sanitizer"] is None


def test_what_an_h200_said_is_read_whole() -> None:
    sample = ROOT / "tests" / "profiling" / "samples" / "ncu-h200.csv"
    side, flat = hardware_counters.described(sample.read_text(encoding="utf-8"), ["dram__bytes.sum.per_second"])
    told = {"status": "measured", "reason": None, "seconds": 8.1, **json.loads(json.dumps(side))}
    found = result({**device_answers.measured(told), "original_device_metrics": flat})
    metrics = found.device_metrics
    assert metrics is not None and metrics.candidate is not None and len(metrics.candidate.kernels) == 10
    for kernel in metrics.candidate.kernels:
        known = vars(kernel).items()
        assert [name for name, value in known if value is None and name not in ("dram_bytes_per_s", "bound")] == []
        assert kernel.stalls and kernel.requested_metrics[0].value and len(in_words(kernel)) >= 5
    assert {"spilling", "uncoalesced"} <= {advice.rule for advice in metrics.candidate.advice}
    assert metrics.candidate.kernels[0].name in printed(found) and "counters, by its own" in brief.of_result(found)


def test_a_person_sees_them_as_a_table() -> None:
    told = printed(result(device_answers.measured(reference=device_answers.side(device_answers.kernel("gemm")))))
    assert re.search(r"softmax_rows +41.5 µs +83% +22% +91% +90% +50% +72% of 75% +0% +long scoreboard 61%", told)
    assert "counters: reference" in told and "gemm" in told and "3 more kernels" in told
    assert f"{device_answers.OFFSET} = 9.43718e+06 inst" in told
    assert "advice" in told and "fewer bytes are the way on" in told
    told = printed(result(device_answers.unavailable()))
    assert "counters  unavailable: the driver lets only administrators" in told
    assert "RestrictProfilingToAdminUsers=0" in told


def test_what_is_left_out_is_said_beside_the_figures() -> None:
    cut = {**device_answers.side(), "reason": "of a call's launches the first 64 were counted"}
    found = result(device_answers.measured(cut))
    for told in (printed(found), brief.of_result(found)):
        assert "of a call's launches the first 64 were counted" in told and "softmax_rows" in told


def test_findings_are_told_at_their_line() -> None:
    found = result(sanitizer=device_answers.sanitizer(device_answers.finding(), device_answers.finding(line=None)))
    checked = found.sanitizer
    assert checked is not None and checked.headline == "found errors: 6 by memcheck"
    assert found.to_dict()["sanitizer"] == "findings"
    told = printed(found, SOURCE)
    assert "found errors: 6 by memcheck" in told
    assert "memcheck: Invalid __global__ write of size 4 bytes (3 times): line 3 of kernel.cu, in scale" in told
    assert ">    3 |   x[i + n] *= 2;" in told and "Address 0x7f00 is out of bounds" in told
    assert "clean (memcheck, racecheck, initcheck, synccheck)" in printed(result(sanitizer=device_answers.sanitizer()))
    away = {"status": "unavailable", "reason": "there is no GPU", "tools": {}}
    assert "unavailable: there is no GPU" in printed(result(sanitizer=away))
    elsewhere = result(sanitizer=device_answers.sanitizer(device_answers.finding(file="cuda.cu")))
    assert "x[i + n]" not in printed(elsewhere, SOURCE), "a line of a file that building it made"


def test_an_agent_is_told_of_both() -> None:
    told = brief.of_result(result(device_answers.measured()), SOURCE)
    assert "\ncounters, by its own processes' word" in told
    assert "\n| softmax_rows (83% of the time): SM 22% of peak, memory 91% of peak, DRAM 90% of peak, occupancy" in told
    assert "\n| advice about softmax_rows: It moves 90 %" in told
    found = result(sanitizer=device_answers.sanitizer(device_answers.finding()))
    told = brief.of_result(found, SOURCE)
    assert "\nsanitizer: found errors: 3 by memcheck\n| memcheck: Invalid __global__ write" in told
    assert "\n| >    3 |   x[i + n] *= 2;" in told and "\nflag: the sanitizer found errors: 3 by memcheck\n" in told
    assert told.count("\nnext: ") == 1
    assert '"kind": "Invalid __global__ write' in parts.of_part(found, "sanitizer", 0)
    assert '"dram_percent": 90.1' in parts.of_part(result(device_answers.measured()), "device_metrics", 0)
    assert parts.of_part(result(), "device_metrics", 0).startswith("none: ask for them with device_metrics=basic")
    assert "counters: unavailable: the driver" in brief.of_result(result(device_answers.unavailable()))


def test_nothing_of_a_submission_stands_as_ours() -> None:
    stall = [{"reason": EVIL, "percent": 99.0}]
    kernel = device_answers.kernel(EVIL, stalls=stall, requested_metrics={EVIL: {"value": 1.0, "unit": EVIL}})
    finding = device_answers.finding(kind=EVIL, kernel=EVIL, file=EVIL, block=EVIL, thread=EVIL, message=EVIL)
    found = result(device_answers.measured(device_answers.side(kernel, advice=EVIL)), device_answers.sanitizer(finding))
    for told in (brief.of_result(found), parts.of_part(found, "device_metrics", 0), printed(found)):
        assert not re.search("[\x1b\x9b\x07]", told)
        assert not [line for line in ours(told) for forged in FORGED if line.startswith(forged)]
    assert len(brief.of_result(found)) <= brief.MAXIMUM_LENGTH


NAMES = [
    "status", "candidate", "reference", "kernels", "advice", "stalls", "memory", "occupancy", "name", "share",
    "requested_metrics", "tools", "memcheck", "findings", "line", "count", "kind", "percent", "reason", "time_us",
    "kernels_omitted", "findings_omitted", "metrics", "value", "figures", "file",
]  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=24,
)


@settings(max_examples=150, deadline=None)
@given(ANYTHING, ANYTHING)
def test_no_form_of_it_is_too_strange(metrics: Any, sanitizer: Any) -> None:
    found = result(metrics, sanitizer)
    assert brief.of_result(found, SOURCE) and printed(found, SOURCE) and found.to_dict()["job_id"] == "j"


def asked(*arguments: str) -> dict[str, Any]:
    return options(parser().parse_args(["evaluate", "scale.cu", *arguments]))


def test_the_command_line_asks() -> None:
    assert asked() == {}
    assert asked("--device-metrics", "--sanitize") == {"device_metrics": "basic", "sanitize": True}
    assert asked("--draw-on", "host") == {"draw_on": "host"}
    assert asked("--determinism", "--gradients") == {"determinism": True, "gradients": True}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write('[{"n": 33}]')
        file.flush()
        assert asked("--cases", file.name) == {"cases": [{"n": 33}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write('{"n": 33}')
        file.flush()
        with pytest.raises(errors.CallerError, match="no JSON list of cases"):
            asked("--cases", file.name)
    assert asked("--strictness", "robust") == {"strictness": "robust"}
    assert asked("--device-metrics", "full") == {"device_metrics": "full"}
    named = ("--metric", "a__b.sum", "--metric", "c__d.avg")
    assert asked(*named) == asked("--device-metrics", *named) == {"device_metrics": ["a__b.sum", "c__d.avg"]}
    with pytest.raises(errors.CallerError, match="--metric adds to the basic metrics"):
        options(argparse.Namespace(device_metrics="full", metric=["a.b"]))
    with pytest.raises(SystemExit):
        parser().parse_args(["evaluate", "--device-metrics", "scale.cu"])


@pytest.mark.parametrize("level", [True, False, "full", ["a__b.sum"], ("a__b.sum",)])
def test_it_is_in_the_body(level: Any) -> None:
    body = json.loads(Submission(Kernel("x", KernelType.TORCH), device_metrics=level, sanitize=True).body())
    assert body["device_metrics"] == (list(level) if isinstance(level, tuple) else level) and body["sanitize"] is True


def test_a_worker_without_a_gpu_says_so(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "twice.py"
    source.write_text(TWICE.source_code)
    assert main(["evaluate", str(source), "--device-metrics", "--sanitize", "--num-trials", "6", "--url", url]) == 0
    told = capsys.readouterr().out
    assert "counters  unavailable: there is no GPU" in told and "sanitizer unavailable: there is no GPU" in told
    with Client(url) as client:
        (job,) = client.jobs(state="completed", limit=1)
        found = client.wait(job.job_id)
        assert found.passed and found.device_metrics is not None and not found.device_metrics.measured
        assert "counters: unavailable: there is no GPU" in brief.of_result(found)
        with pytest.raises(errors.CallerError) as caught:
            client.evaluate(TWICE, device_metrics=["sm__cycles_active.avg", "Regex:.*"])
    assert "device_metrics" in str(caught.value.fields[0]) and "ncu --query-metrics" in str(caught.value.fields[0])


def test_a_profilers_report_is_saved_byte_for_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = {"name": "profile.ncu-rep", "format": "ncu-rep", "kernel": None, "bytes": 6}
    wire = failing.result()
    wire["kernel_exec_result"]["artifacts"] = [kept]
    content = b"NVR\0\xff\n"

    def answer(request: failing.Seen) -> failing.Reply:
        report = request.path == "/job/j1/artifacts/candidate/profile.ncu-rep"
        return failing.Reply(body=content if report else failing.job("completed", found=wire))

    with failing.listening(failing.Told(answer=answer)) as told, Client(told.url) as client:
        (one,) = client.artifacts("j1")
        assert not one.is_text and client.artifact_bytes("j1", one) == content
        with pytest.raises(errors.CallerError, match="artifact_bytes has it"):
            client.artifact("j1", one)
        assert main(["artifacts", "j1", "-o", str(tmp_path), "--url", told.url]) == 0
    assert (tmp_path / "candidate" / "profile.ncu-rep").read_bytes() == content
    assert "ncu-rep" in capsys.readouterr().out
