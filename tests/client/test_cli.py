"""`kernel-eval` against the real service: what it prints, what it exits with."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.paths import ROOT
from kernel_eval_client import Client, Finished
from kernel_eval_client.cli import watching
from kernel_eval_client.cli.main import main
from tests.client.failing import Reply, Told, listening
from tests.client.test_service import HANGS, TWICE, UNBALANCED, WRONG
from tests.conftest import free_port

EXAMPLES = ROOT / "examples"
QUICK = ("--num-trials", "6", "--target-precision", "0.5")


class Command:
    """Runs it in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        status = main([*map(str, arguments), "--url", self.url])
        self.out, self.err = self._capsys.readouterr()
        return int(status)

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(url, capsys)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, kernel in {"twice": TWICE, "wrong": WRONG, "unbalanced": UNBALANCED, "hangs": HANGS}.items():
        (tmp_path / f"{name}.py").write_text(kernel.source_code)
    return tmp_path


def test_a_passing_kernel(run: Command, files: Path) -> None:
    assert run("evaluate", files / "twice.py", *QUICK) == 0
    assert run.out.startswith("passed") and "a call" in run.out and "job " in run.out


def test_how_to_judge_reaches_the_service(run: Command, files: Path) -> None:
    chosen = ("--budget", "quick", "--priority", "7", "--gpu", "cpu", "--reuse", "never")
    assert run("compare", files / "twice.py", files / "twice.py", *chosen, "--json") == 0
    assert run.json()["budget"]["name"] == "quick" and run.json()["budget"]["skipped_checks"]
    with Client(run.url) as client:
        assert client.job(run.json()["job_id"]).raw["priority"] == 7


def test_a_failure_ends_with_what_to_do_and_where_to_read_more(run: Command, files: Path) -> None:
    assert run("compare", files / "twice.py", files / "wrong.py") == 1
    *_, step, report = run.out.splitlines()
    assert step.startswith("  next      Check the formula") and report.startswith(f"  report    {run.url}/job/")


def test_a_job_again_by_its_name_and_its_source(run: Command, files: Path) -> None:
    assert run("evaluate", files / "twice.py", "--name", "twice as fast", *QUICK, "--json") == 0
    job_id = run.json()["job_id"]
    assert run.json()["name"] == "twice as fast"
    assert run("list", "--limit", "1") == 0 and "twice as fast" in run.out
    assert run("again", job_id) == 0 and "twice as fast" in run.out
    assert run("source", job_id) == 0 and run.out.strip() == TWICE.source_code.strip()
    assert run("source", job_id, "--reference") == 2 and "it was no comparison" in run.err
    assert run("evaluate", files / "wrong.py", *QUICK, "--json") == 0 and run.json()["name"] == str(files / "wrong.py")


def test_a_request_may_be_compared_too(run: Command) -> None:
    assert run("compare", EXAMPLES / "compare-wrong" / "request.json", "--json") == 1
    assert run.json()["verdict"] == "wrong_result"
    assert run("compare", EXAMPLES / "compare-wrong" / "candidate.py") == 2
    assert "takes two files: REFERENCE CANDIDATE" in run.err


def test_alone_it_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "Judge one kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (
            ["evaluate", "k.py", "--num-trails", "5"],
            "unrecognized arguments: --num-trails 5; did you mean --num-trials?",
        ),
        (["evaluate", "k.py", "--typ=pytorch"], "did you mean torch?"),
        (["evaluate", "k.py", "--budget", "quik"], "did you mean quick?"),
        (["evalute", "k.py"], "did you mean evaluate?"),
        (["show", "some-job"], "did you mean report?"),
        (["list", "--limit", "many"], "must be a whole number, not 'many'"),
        (["compare", "k.py", "k.py", "--atol", "tight"], "must be a number, not 'tight'"),
    ],
)
def test_a_mistyped_option_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], meant: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    first, help_line = capsys.readouterr().err.splitlines()
    assert first.endswith(meant) and help_line.endswith("--help` lists the options.)")


def test_a_type_may_be_in_capitals(run: Command, files: Path) -> None:
    assert run("evaluate", files / "twice.py", "--type", "TORCH", *QUICK) == 0


def test_a_key_of_another_service_is_not_sent_and_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(Reply(401, {"type": "urn:kernel-eval:problem:key-required", "detail": "an API key is needed"}))
    monkeypatch.setenv("KERNEL_EVAL_API_KEY", "secret")
    monkeypatch.setenv("KERNEL_EVAL_URL", "http://elsewhere.example")
    with listening(told):
        assert main(["list", "--url", told.url]) == 2
    err = capsys.readouterr().err
    assert f"KERNEL_EVAL_API_KEY was not sent: it belongs to another URL. Set KERNEL_EVAL_URL to {told.url}" in err
    assert "secret" not in err and "next: Set KERNEL_EVAL_API_KEY" in err


def test_a_key_that_no_header_can_carry_is_no_failure_of_the_service(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_EVAL_API_KEY", "secret\n")
    assert main(["list"]) == 2
    err = capsys.readouterr().err
    assert "set KERNEL_EVAL_API_KEY again" in err and "secret" not in err


def test_a_wrong_kernel_and_its_json(run: Command, files: Path) -> None:
    assert run("compare", files / "twice.py", files / "wrong.py", "--json") == 1
    assert run.json()["verdict"] == "wrong_result"


def test_a_compile_error_is_shown_at_its_line(run: Command, files: Path) -> None:
    assert run("evaluate", files / "unbalanced.py") == 1
    assert "line 1: SyntaxError: '(' was never closed" in run.out
    assert ">    1 | def kernel_fn(x:" in run.out


def test_a_cuda_request_with_its_source_beside_it(run: Command) -> None:
    assert run("evaluate", EXAMPLES / "does-not-compile" / "request.json") == 1
    assert 'line 3: error: identifier "facter" is undefined' in run.out
    assert ">    3 |     if (i < n) x[i] *= facter;" in run.out


def test_a_contract_beside_the_source_is_taken(run: Command, tmp_path: Path) -> None:
    example = json.loads((EXAMPLES / "does-not-compile" / "request.json").read_text())
    assert run("evaluate", EXAMPLES / "does-not-compile" / "kernel.cu", "--json") == 1, "a request there names it"
    shutil.copy(EXAMPLES / "does-not-compile" / "kernel.cu", tmp_path)
    assert run("evaluate", tmp_path / "kernel.cu") == 2
    assert "kernel.io: is missing" in run.err and "openapi" not in run.err
    assert "--io FILE" in run.err and "NAME.io.json next to NAME.cu" in run.err
    (tmp_path / "kernel.io.json").write_text(json.dumps(example["kernel"]["io"]))
    assert run("evaluate", tmp_path / "kernel.cu", "--json") == 1
    assert run.json()["verdict"] == "compile_error"


def test_a_request_at_fault_as_json(run: Command, files: Path) -> None:
    assert run("evaluate", files / "twice.py", "--num-trials", "0", "--json") == 2
    error = run.json()["error"]
    assert (error["fault"], error["status"], error["exit"]) == ("caller", 400, 2)
    assert error["problem"]["errors"][0]["path"] == ["num_trials"]


@pytest.mark.parametrize(
    "arguments", [["evaluate", "nosuch.py"], ["batch", "nosuch"], ["status", "nosuch"], ["watch", "nosuch.py"]]
)
def test_what_is_not_there(run: Command, arguments: list[str]) -> None:
    assert run(*arguments) == 2
    assert "nosuch" in run.err


def test_a_folder_is_a_batch(run: Command, files: Path) -> None:
    assert run("evaluate", files) == 2
    assert f"kernel-eval batch {files}" in run.err


def test_a_job_from_submit_to_cancel(run: Command, files: Path) -> None:
    assert run("submit", files / "hangs.py", "--timeout", "60") == 0
    job_id = run.out.strip()
    assert run("status", job_id) == 0 and job_id in run.out
    assert run("wait", job_id, "--max-wait", "0.1") == 4
    assert run("list", "--limit", "1") == 0 and job_id in run.out
    assert run("cancel", job_id, "--max-wait", "30") == 0 and "cancelled" in run.out
    assert run("wait", job_id) == 5
    assert run("list", "--state", "cancelled", "--json") == 0
    assert job_id in {job["job_id"] for job in run.json()}


def test_ctrl_c_cancels_the_job(run: Command, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Client, "wait_for_job", interrupted)
        assert run("evaluate", files / "hangs.py") == 130
    assert "Cancelled job" in run.err
    with Client(run.url) as client:
        (job,) = client.jobs(limit=1)
        assert client.wait_for_job(job.job_id).state == "cancelled"


def test_a_batch_has_a_summary_and_the_worst_exit(run: Command, files: Path) -> None:
    reference = files.parent / "reference.py"
    (files / "twice.py").rename(reference)
    (files / "hangs.py").unlink()
    shutil.copytree(EXAMPLES / "does-not-compile", files / "cuda")
    (files / "helper.py").write_text("import torch\n\ndef _halve(x):\n    return x / 2\n")
    assert run("batch", files, "--reference", reference, *QUICK) == 1
    rows = [line.split()[:2] for line in run.out.splitlines() if line]
    assert rows[1:4] == [  # Not cuda/kernel.cu: its request stands for it.
        ["cuda/request.json", "compile_error"],
        ["unbalanced.py", "compile_error"],
        ["wrong.py", "wrong_result"],
    ]
    assert run.out.splitlines()[-3:] == [
        "2 compile_error, 1 wrong_result",
        "skipped, as no submission (it defines no Model, ModelNew, kernel_fn): helper.py",
        f"Reports of all jobs: {run.url}/jobs",
    ]


def test_a_batch_as_json_has_a_line_for_each(run: Command, files: Path) -> None:
    for name in ("hangs", "wrong", "twice"):
        (files / f"{name}.py").unlink()
    (files / "notes.json").write_text("[]")
    shutil.copy(EXAMPLES / "rl" / "trl_grpo.py", files)
    (files / "nosuch_type.json").write_text('{"kernel": {"source_code": "", "kernel_type": "nosuch"}}')
    assert run("batch", files, "--json") == 2
    lines = {Path(line["file"]).name: line for line in map(json.loads, run.out.splitlines())}
    assert lines["nosuch_type.json"]["error"]["fault"] == "caller"
    assert lines["unbalanced.py"]["result"]["verdict"] == "compile_error"
    assert lines["trl_grpo.py"] == {"file": "trl_grpo.py", "skipped": "it is a program that uses this client"}
    assert len(lines) == 3


def test_what_cannot_be_read_costs_a_batch_nothing_else(run: Command, files: Path) -> None:
    for name in ("hangs", "wrong", "twice"):
        (files / f"{name}.py").unlink()
    (files / "latin.py").write_bytes("# é\n".encode("latin-1"))
    (files / "broken.json").write_text('{"kernel": ')
    (files / "marked.json").write_text("\ufeff[]", encoding="utf-8")
    (files / "folder.py").mkdir()
    assert run("batch", files, *QUICK) == 2
    rows = [line.split()[:2] for line in run.out.splitlines() if line]
    assert rows[1:4] == [
        ["unbalanced.py", "compile_error"],
        ["broken.json", "CallerError"],
        ["latin.py", "CallerError"],
    ]
    assert "byte 2 is not UTF-8; save it as UTF-8" in run.out and "broken.json is not JSON" in run.out


def test_ctrl_c_in_a_batch_shows_what_is_judged(run: Command, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Client.map

    def interrupted(*given: Any, **options: Any) -> Iterator[Finished]:
        yield from itertools.islice(judged(*given, **options), 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "map", interrupted)
    (files / "hangs.py").unlink()
    assert run("batch", files, *QUICK, "--concurrency", "1") == 130
    assert "\n1 passed\n" in run.out and "Stopped: 2 without a verdict" in run.err


def test_watch_judges_again_when_the_file_is_saved(run: Command, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, waits = files / "unbalanced.py", threading.Event()

    def save(_: float) -> None:
        if not waits.is_set():
            waits.set()
            file.write_text("import nosuch_module\n")

    monkeypatch.setattr(watching, "pause", save)
    assert run("watch", file, "--runs", "2") == 1
    assert waits.is_set()
    assert "was never closed" in run.out and "nosuch_module" in run.out


def test_watch_follows_a_job_to_its_end(run: Command, files: Path) -> None:
    assert run("submit", files / "unbalanced.py") == 0
    job_id = run.out.strip()
    assert run("watch", job_id) == 1
    assert run.out.splitlines()[0].endswith(" s  queued")
    assert "build" in run.out and "compile_error" in run.out and "was never closed" in run.out
    assert run("watch", job_id, "--json") == 1
    *events, last = map(json.loads, run.out.splitlines())
    assert [each["event"] for each in events][-1] == "done" and last["verdict"] == "compile_error"
    assert run("watch", job_id, "--max-wait", "1") == 2 and f"kernel-eval wait {job_id}" in run.err
    assert run("watch", "nosuch") == 2


def test_a_report_on_a_terminal_is_text(run: Command, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("compare", files / "twice.py", files / "wrong.py", "--json") == 1
    job_id = run.json()["job_id"]
    assert run("report", job_id) == 0 and run.out.startswith("<!doctype html>")
    assert run("report", job_id, "--json") == 0 and run.json()["result"]["verdict"] == "wrong_result"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("report", job_id) == 0
    assert (
        "It compiles, but its outputs" in run.out and "wrong_result" in run.out and f"/job/{job_id}/report" in run.out
    )
    assert "<html" not in run.out
    assert run("report", job_id, "--html") == 0 and run.out.startswith("<!doctype html>")


def test_doctor_finds_a_service_well(run: Command) -> None:
    assert run("doctor", "--json") == 0
    checks = {check["name"]: check for check in run.json()["checks"]}
    assert {"service", "key", "version", "broker", "workers", "gpu", "toolchain", "sandbox", "judging"} <= checks.keys()
    assert checks["gpu"]["state"] == "warning" and "nvidia-smi" in checks["gpu"]["fix"]
    assert checks["judging"]["state"] == "ok"


def test_doctor_without_a_service(run: Command) -> None:
    run.url = f"http://127.0.0.1:{free_port()}"
    assert run("doctor") == 3
    assert "make serve" in run.out


@pytest.mark.parametrize(
    ("health", "name", "fix"),
    [
        ({"broker": "unavailable", "reasons": ["the broker cannot be asked"]}, "broker", "CELERY_BROKER_URL"),
        ({"broker": "ready", "workers": []}, "workers", "make serve"),
        ({"broker": "ready", "workers": [{"name": "w", "quarantined": "Xid 79"}]}, "workers", "nvidia-smi"),
        ({"broker": "ready", "workers": [{"name": "w"}], "reasons": ["it is being stopped"]}, "judging", "Try again"),
    ],
)
def test_doctor_says_what_is_wrong(run: Command, health: dict[str, Any], name: str, fix: str) -> None:
    told = Told(
        Reply(503, {"status": "unhealthy", **health}), Reply(200, {"jobs": [], "next_cursor": None, "info": {}})
    )
    with listening(told):
        run.url = told.url
        assert run("doctor", "--json") == 3
    (failed,) = [check for check in run.json()["checks"] if check["state"] == "failed"]
    assert failed["name"] == name and fix in failed["fix"]


def test_doctor_names_layers_that_do_not_hold_and_loops_that_fail(run: Command) -> None:
    layers = {"landlock": {"active": False, "detail": "the kernel has none"}, "seccomp": {"active": True, "detail": ""}}
    worker = {"name": "w", "gpu_available": True, "gpu_name": "H200", "versions": {"torch": "2"}, "sandbox": layers}
    worker |= {"failing": ["the reconciler failed"]}
    health = {"status": "healthy", "broker": "ready", "gpu_available": True, "gpu_count": 1, "workers": [worker]}
    told = Told(Reply(200, health), Reply(200, {"jobs": [], "next_cursor": None, "info": {}}))
    with listening(told):
        run.url = told.url
        assert run("doctor", "--quick", "--json") == 0
    checks = {check["name"]: check for check in run.json()["checks"]}
    assert checks["workers"]["state"] == "warning" and checks["workers"]["detail"] == "w: the reconciler failed"
    assert checks["sandbox"]["state"] == "warning" and "landlock is not active" in checks["sandbox"]["detail"]
    assert "triton" in checks["toolchain"]["fix"] and checks["gpu"]["detail"] == "1: H200"


def test_what_every_command_takes_may_stand_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["--json", "--url", url, "--patience", "0", "doctor"]) == 3
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert url in check["detail"]
    assert main(["--url", "http://127.0.0.1:1", "doctor", "--url", url, "--json", "--patience", "0"]) == 3
    assert url in capsys.readouterr().out


def test_no_service_is_its_own_exit(run: Command, files: Path) -> None:
    run.url = f"http://127.0.0.1:{free_port()}"
    assert run("evaluate", files / "twice.py", "--patience", "0", "--json") == 3
    assert run.json()["error"]["fault"] == "service"
    assert "kernel-eval doctor" in run.err


def test_a_report_that_the_service_does_not_make(run: Command) -> None:
    told = Told(Reply(404, {"type": "about:blank", "status": 404, "detail": "there is no such path"}))
    with listening(told):
        run.url = told.url
        assert run("report", "j1", "--html") == 2
    assert "makes no reports" in run.err


def test_a_report_is_written(run: Command, tmp_path: Path) -> None:
    with listening(Told(Reply(200, {"page": "of a job"}))) as told:
        run.url = told.url
        assert run("report", "j1", "--html", "--output", tmp_path / "report.html") == 0
    assert "of a job" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    "arguments", [[], ["nosuch"], ["evaluate"], ["wait", "j", "--max-wait", "-1"], ["list", "--limit", "0"]]
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2


def test_doctor_tells_a_refused_key_by_its_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Reply(401, {"type": "urn:kernel-eval:problem:key-required", "detail": "an API key is needed"})
    told = Told(answer=lambda asked: Reply(200, {"status": "healthy"}) if asked.path == "/health" else refused)
    monkeypatch.setenv("KERNEL_EVAL_API_KEY", "secret")
    monkeypatch.setenv("KERNEL_EVAL_URL", "http://elsewhere.example")
    with listening(told):
        assert main(["doctor", "--url", told.url]) == 2
    assert "KERNEL_EVAL_API_KEY belongs to another one and was not sent" in capsys.readouterr().out
