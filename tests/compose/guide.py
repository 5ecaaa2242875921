"""What docs/operations.md tells an operator to do, done: its own commands, in a shell."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable

import httpx

from tests.compose.events import SLOW, Ledger
from tests.compose.project import ROOT, Project
from tests.otlp import Collector

TRACED_S = 30.0
SPANS = {"POST /evaluate", "apply_async/evaluate", "run/evaluate"}


def commands(section: str) -> list[str]:
    """The blocks of bash in that section of the guide."""
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```bash\n(.*?)^```", found, re.MULTILINE | re.DOTALL)


def shell(project: Project, script: str) -> str:
    """In the project's folder, where `docker compose` is that project's; raises subprocess.CalledProcessError."""
    compose = f'docker() {{ shift; {shlex.join(project.command())} "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-euc", f"{compose}cd {shlex.quote(str(project.folder))}\n{script}"],
        env=project.engine.environment, cwd=ROOT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout


def followed(ledger: Ledger, collected: Collector) -> None:
    """One job by its id: through the logs of the API and of a worker, and as a trace from POST to the task's end."""
    ledger.judge("one more of each, for their logs and traces", 1)
    job_id = ledger.trials[-1].job_id
    lines = []
    for line in ledger.project.compose("logs", "--no-color").splitlines():
        service, _, told = line.partition("|")
        if told.lstrip().startswith("{") and json.loads(told).get("job_id") == job_id:
            lines.append((service.strip().removeprefix("first").strip("-_").rstrip("-_0123456789"), json.loads(told)))
    services = sorted({service for service, _ in lines})
    assert services == ["api", "worker-cpu"], services
    stages = {told["stage"] for _, told in lines if "stage" in told}
    assert stages >= {"build", "load", "validate"}, stages
    deadline, spans = time.monotonic() + TRACED_S, []
    while time.monotonic() < deadline and not {span.name for span in spans} >= SPANS:
        sent = [span for span in collected.spans if span.attributes.get("messaging.message.id") == f"{job_id}.1"]
        spans = [span for span in collected.spans if span.trace in {one.trace for one in sent}]
        time.sleep(0.2)
    assert {span.name for span in spans} >= SPANS, {span.name for span in spans}
    ledger.say(f"a job by its id: {len(lines)} lines of {' and '.join(services)}; a trace of {len(spans)} spans, "
               f"of {' and '.join(sorted({span.service for span in spans}))}")  # fmt: skip


def backup(ledger: Ledger, say: Callable[[str], None]) -> None:
    """All volumes are lost with a job queued; what was copied before brings back every result, key and job."""
    save, restore = commands("Backup")
    project, before = ledger.project, [trial.job for trial in ledger.trials]
    slow = ledger.post(SLOW)
    shell(project, save)
    project.down()
    began = time.monotonic()
    shell(project, restore)
    ledger.until_healthy()
    say(f"backup, all volumes lost, restored: healthy after {time.monotonic() - began:.0f} s")
    for trial, job in zip(ledger.trials, before, strict=False):
        trial.poll(ledger.client)
        assert trial.job is not None and job is not None and trial.job["result"] == job["result"], trial.job_id
    ledger.wait([slow])
    ledger.told(f"{len(before)} results are as they were; the job of the time of the copy", [slow], began)


def other_password(ledger: Ledger, say: Callable[[str], None]) -> None:
    """Redis' password is changed as the guide says; what was is still there."""
    project, password = ledger.project, secrets.token_hex(24)
    old = project.variables["REDIS_PASSWORD"]
    broker = project.variables["CELERY_BROKER_URL"].replace(old, password)
    project.write(REDIS_PASSWORD=password, CELERY_BROKER_URL=broker)
    project.compose("up", "-d")
    ledger.judge("Redis has another password", 1)
    ledger.trials[0].poll(ledger.client)
    told = project.compose("logs", "--no-color")
    assert old not in told and password not in told, "a password is in a log"
    say("neither password is in any log")


def keys(ledger: Ledger, say: Callable[[str], None]) -> None:
    """A key is refused from the request on that follows its revocation."""
    key = ledger.project.key("leaver", "read")
    asked = [
        httpx.get(f"{ledger.project.api}/jobs", headers={"Authorization": f"Bearer {key}"}, trust_env=False).status_code
        for _ in ("before", ledger.project.compose("run", "--rm", "-T", "keys", "list"))
    ]
    ledger.project.compose("run", "--rm", "-T", "keys", "revoke", "leaver")
    after = httpx.get(f"{ledger.project.api}/jobs", headers={"Authorization": f"Bearer {key}"}, trust_env=False)
    assert asked == [200, 200] and after.status_code == 401, (asked, after)
    say("a key: 200 before it is revoked, 401 after")
