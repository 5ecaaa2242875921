"""The code of a kernel as text through the client, the command line and the tools for agents, of the real service."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="an extra of the client that an offline GPU box lacks")

from kernel_eval_client import Artifact, Client, MachineCode, Result, errors
from kernel_eval_client.agents import brief, mcp_server
from kernel_eval_client.cli import show
from kernel_eval_client.cli.main import main
from kernel_eval_client.cli.terminal import Terminal
from kernel_eval_client.launch_summary import in_a_line
from tests.backends.cuda.test_backend import IO, SCALE
from tests.client.conftest import Asked
from tests.client.test_mcp import call
from tests.client.test_service import TWICE

KERNEL = {"source_code": SCALE, "kernel_type": "cuda", "io": IO}
EVIL = "\x1b]0;mine\x07 \x9b31m"


@pytest.fixture(scope="module")
def judged(url: str) -> Iterator[Result]:
    """A raw CUDA kernel, which a worker without a GPU compiles and does not run."""
    with Client(url) as client:
        yield client.evaluate(KERNEL, artifacts=["ptx", "sass", "ttir"])


def test_they_are_typed_and_each_is_a_text(judged: Result, url: str, ask: Asked) -> None:
    ptx, sass, ttir = found = ask(url, None, "artifacts", judged.job_id)
    assert found == list(judged.artifacts)
    assert (ptx.side, ptx.format, ptx.name, ptx.truncated) == ("candidate", "ptx", "scale.ptx", False)
    text = ask(url, None, "artifact", judged.job_id, ptx)
    assert ".visible .entry" in text and len(text.encode()) == ptx.bytes
    assert "EXIT" in ask(url, None, "artifact", judged.job_id, sass)
    with pytest.raises(errors.CallerError, match="one of Triton's stages"):
        ask(url, None, "artifact", judged.job_id, ttir)
    (code,) = judged.kernel.machine_code
    assert code.name == "scale" and (code.registers or 0) > 0 and code.occupancy == 1.0 and code.limited_by == "warps"


def test_unknown_forms_are_the_callers(client: Client) -> None:
    with pytest.raises(errors.CallerError) as caught:
        client.evaluate(KERNEL, artifacts=["elf"])  # type: ignore[list-item]
    assert "artifacts" in str(caught.value.fields[0])


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "a\x1b", "a b"])
def test_a_name_that_is_more_than_a_name_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="is no artifact"):
        Artifact("candidate", "ptx", name).path("j")
    with pytest.raises(ValueError, match="is no artifact"):
        Artifact("../other", "ptx", "a.ptx").path("j")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ({}, []),
        ({"registers": "many", "kernels": "none"}, [MachineCode("f")]),
        (
            {"registers": 40, "static_shared_bytes": 16, "occupancy": {"theoretical": 0.5, "shared_bytes": 32}},
            [MachineCode("f", 40, shared_bytes=32, occupancy=0.5)],
        ),
        (
            {"variants": [{"num_warps": 4, "registers": 1, "occupancy": 1.0, "limited_by": "warps"}, 7]},
            [MachineCode("variant 1: num_warps=4", 1, occupancy=1.0, limited_by="warps")],
        ),
        ({"kernels": [{"name": "k", "registers": 2, "spill_store_bytes": 4}]}, [MachineCode("k", 2, None, 4)]),
    ],
)
def test_what_machine_code_needs(build: dict[str, Any], expected: list[MachineCode]) -> None:
    assert MachineCode.all_of(build, "f") == expected


@pytest.mark.parametrize(
    ("launches", "told"),
    [
        (None, None),
        ({"status": "unavailable", "reason": "no profiler"}, "not known: no profiler"),
        ({"launches": 0.0, "kernels": []}, "0 a call: nothing"),
        (
            {"launches": 2.5, "kernels_omitted": 1, "kernels": [
                {"name": "axpy", "share": 0.75, "origin": "custom"}, {"name": "gemm", "share": 0.2, "origin": "other"},
                {"name": "copy", "share": 0.04, "origin": "memory"}, {"name": "fill", "share": 0.01},
            ]},
            "2.5 a call: 75% axpy (custom), 20% gemm (other), 4% copy (memory), and 2 more",
        ),
    ],
)  # fmt: skip
def test_what_is_launched_in_a_line(launches: dict[str, Any] | None, told: str | None) -> None:
    assert in_a_line(launches) == told


def test_a_profiled_job_tells_what_it_launches(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "twice.py"
    source.write_text(TWICE.source_code)
    assert main(["evaluate", str(source), "--profile", "--num-trials", "6", "--url", url]) == 0
    told = capsys.readouterr().out
    assert "launches" in told and "% aten::mul (other)" in told
    with Client(url) as client:
        (job,) = client.jobs(state="completed", limit=1)
        assert "aten::mul" in brief.of_result(client.wait(job.job_id))


def test_on_the_command_line(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"kernel": KERNEL}))
    assert main(["evaluate", str(request), "--artifact", "ptx", "--artifact", "ttgir", "--url", url]) == 1
    told = capsys.readouterr().out
    assert "limited by" in told and "100%" in told and "1 available, 1 unavailable: kernel-eval artifacts " in told
    job_id = told.partition("kernel-eval artifacts ")[2].split()[0]
    assert main(["artifacts", job_id, "-o", str(tmp_path / "out"), "--url", url]) == 0
    told = capsys.readouterr().out
    assert ".visible .entry" in (tmp_path / "out" / "candidate" / "scale.ptx").read_text()
    assert "unavailable: ttgir is one of Triton's stages" in told
    assert main(["artifacts", job_id, "--json", "--url", url]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["scale.ptx", None]


def test_nothing_of_it_reaches_the_terminal_as_a_command() -> None:
    written = io.StringIO()
    codes = MachineCode.all_of({"kernels": [{"name": EVIL, "limited_by": EVIL}] * 20}, "f")
    show.machine_code(Terminal(written, 160), codes)
    text = written.getvalue()
    assert "\x1b" not in text and "\x9b" not in text and "\x07" not in text and "12 more kernels" in text


def test_for_agents(judged: Result, url: str) -> None:
    told = brief.of_result(judged)
    assert "code of scale: " in told and "theoretical occupancy 100%, limited by warps" in told
    server = mcp_server.server(url)
    job = {"job_id": judged.job_id}
    (_, listed), (_, text), (_, part) = call(
        server, ("artifact", job), ("artifact", {**job, "name": "scale.ptx"}), ("result", {**job, "part": "artifacts"})
    )
    assert "candidate: scale.ptx, " in listed and "candidate: no ttir: ttir is one of Triton's stages" in listed
    assert ".visible .entry" in text and '"format": "sass"' in part
    asked = {"source_code": SCALE, "kernel_type": "cuda", "io": IO, "artifacts": ["ptx"]}
    ((failed, told),) = call(server, ("evaluate", asked))
    assert not failed and told.startswith("unsupported")


def test_a_job_that_was_not_asked(client: Client) -> None:
    assert client.artifacts(client.evaluate(KERNEL).job_id) == []
