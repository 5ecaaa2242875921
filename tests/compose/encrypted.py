"""A Redis of the operator's own behind TLS, with an authority that no system knows, as docs/deployment.md says."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.compose.base import REDIS
from tests.compose.events import WORKER, Ledger
from tests.compose.project import Project, free_port, own_address

SERVICES = ("api", "flower", WORKER)
INSIDE = "/run/ca.pem"


def certificate(folder: Path) -> None:
    """`ca.pem`, good for this machine's address, and `key.pem`."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=redis"),
            *("-addext", f"subjectAltName=IP:{own_address()}"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "key.pem").chmod(0o644)


def judged(node: Project, folder: Path, say: Callable[[str], None]) -> bool:
    """Whether all examples came out right through it."""
    password, port, files = secrets.token_hex(24), str(free_port()), folder / "tls"
    files.mkdir(exist_ok=True)
    certificate(files)
    server = node.engine.docker(
        *("run", "--detach", "--network", "host", "--volume", f"{files}:/tls:ro", REDIS, "redis-server"),
        *("--port", "0", "--tls-port", port, "--bind", own_address(), "--tls-auth-clients", "no"),
        *("--tls-cert-file", "/tls/ca.pem", "--tls-key-file", "/tls/key.pem", "--requirepass", password),
        *("--dir", "/data", "--appendonly", "yes", "--maxmemory-policy", "noeviction"),
    )
    broker = f"rediss://:{password}@{own_address()}:{port}/0?ssl_ca_certs={INSIDE}"
    ports = {f"{name}_PORT": str(free_port()) for name in ("API", "FLOWER")}
    project = Project(
        node.engine, folder / "encrypted", "encrypted", {**node.variables, **ports, "CELERY_BROKER_URL": broker}
    )
    mounted = {name: {"volumes": [f"{files}/ca.pem:{INSIDE}:ro"]} for name in SERVICES}
    (project.folder / "over.yml").write_text(json.dumps({"services": mounted}))
    try:
        project.compose("up", "-d", "--no-deps", *SERVICES)
        key = project.key("trial", "submit", "read")
        with httpx.Client(
            base_url=project.api, headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False
        ) as client:
            ledger = Ledger(project, client, say)
            ledger.judge("a Redis of one's own behind TLS, with an authority of its own", 1)
            ledger.balance()
            restarts = [project.inspected(service)["RestartCount"] for service in SERVICES]
            assert not any(restarts), restarts
            return ledger.good
    finally:
        project.down()
        node.engine.docker("rm", "--force", "--volumes", server)
