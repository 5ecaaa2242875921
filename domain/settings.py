"""The service's settings, read from the environment in this one place."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from environs import Env, EnvError, ValidationError, validate

from domain.host_memory import USUAL_JOBS_AT_ONCE, runner_memory_share

MIB = 1 << 20
AUTO, ON, OFF = "auto", "on", "off"
AVAILABLE, STRICT = "available", "strict"
SANDBOX_LAYERS = (
    *("own_user", "capabilities", "no_new_privileges", "landlock", "seccomp"),
    *("signals", "namespaces", "cgroup", "own_gpu_only", "private_tmp"),
)
"""Layers that `SANDBOX` may require of a worker; `sandbox.isolation.layer_probe` tests which of them hold."""
STRICT_LAYERS = tuple(name for name in SANDBOX_LAYERS if name != "private_tmp")
"""The layers that confine a submission. Without a private /tmp, a submission simply has no /tmp."""

LOOPBACK = "127.0.0.1"
CONSOLE, JSON = "console", "json"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
HIGHEST_PORT = 65_535
HIGHEST_PRIORITY = 9
_MIN_SIMILARITY = 0.88
"""Minimum similarity of a misspelt setting, by difflib's measure: `MAX_WORKER` and `MAX_WORKERS` have 0.95."""
_LONGEST_S = 2**31
"""Maximum of times, in s: 68 years. Redis refuses one 10^9 times as long, in the middle of a script."""
_ADVICE = {
    "Not a valid integer": "Write a whole number without a unit, or unset it",
    "Not a valid number": "Write a number without a unit, or unset it",
    "Not a valid boolean": "Write on or off",
}
_BROKER = re.compile(r"rediss?://[^/?#]*[/\d]*(\?[^#@]*)?$")
_HOST = re.compile(r"(\[[\da-f:.]+\]|[^][/@?*:\s]+)(:\d+)?|[\da-f:.]+")
_ARCHITECTURE = validate.Regexp(r"(sm_\d{2,3}a?)?\Z", error="Must be an architecture such as sm_90.")
_COLLECTOR = validate.Regexp(r"(https?://.*)?$", error="Must begin with http:// or https://.")


@dataclass(frozen=True)
class Settings:
    """All settings. Sizes in bytes, times in seconds.

    - `sandbox`: layers that a worker requires to start.
    - `lease_dir`: where jobs of all services queue for a device; services that share a device must share it.
    - `build_for`: the architecture for which a service without a GPU compiles too, such as "sm_90"; None for none.
    - `shared_builds`: maximum size of the builds that nodes share; 0 for none.
    - `warm_reference`: maximum idle time of a reference's runner that is kept for the next job; 0 for none.
    - `context_reuses`: number of further candidates without host code that a context may serve; 0 for none.
    - `drain_file`: while the file exists, the API takes no new jobs.
    - `keep_sources`: whether a job's request, with its sources, is kept after the job's end.
    - `lasting`: whether the service keeps its queue when it stops.
    """

    broker_url: str
    host: str
    port: int
    gpu_device: str | None
    visible_devices: str | None
    max_workers: int | None
    log_level: str
    log_format: str
    otlp_endpoint: str | None
    enable_device_metrics: bool
    state_dir: Path
    lease_dir: Path
    log_dir: Path
    job_ttl: int
    drain_seconds: float
    drain_file: Path | None
    max_source: int
    max_body: int
    max_batch: int
    max_queue: int
    records_memory: int
    runner_memory: int
    sandbox: tuple[str, ...]
    arena_memory: int | None
    build_cache: int
    shared_builds: int
    warm_reference: float
    context_reuses: int
    build_for: str | None
    require_api_keys: str
    api_keys_file: Path
    key_requests_per_minute: int
    key_max_jobs: int
    webhook_hosts: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    key_max_priority: int
    keep_sources: bool
    lasting: bool = True

    @property
    def keys_required(self) -> bool:
        """Whether clients of `host` need an API key."""
        return self.require_api_keys == ON or (self.require_api_keys == AUTO and not self.loopback)

    def private(self) -> Settings:
        """The settings of a private service: on a loopback address, without keys, and nothing kept."""
        return dataclasses.replace(self, host=LOOPBACK, require_api_keys=OFF, lasting=False)

    @property
    def loopback(self) -> bool:
        """Whether `host` is reachable from this machine only."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@cache
def settings() -> Settings:
    """The settings of this process; raises environs.EnvError, which names the variable that does not parse."""
    return _read(Env())


def misspelt_settings() -> list[str]:
    """A message for each variable of the environment that is no setting, but looks like one."""
    env = Env()
    _read(env)
    names = list(env.dump())
    # OpenTelemetry's own variables are alike, and read by its library.
    others = [name for name in os.environ if name not in names and not name.startswith("OTEL_")]
    near = ((name, get_close_matches(name, names, 1, _MIN_SIMILARITY)) for name in others)
    return [f"{name} is no setting; did you mean {similar[0]}? (docs/settings.md)" for name, similar in near if similar]


def _read(env: Env) -> Settings:
    try:
        return _parse(env)
    except EnvError as error:
        message = str(error)
        for fault, advice in _ADVICE.items():
            message = message.replace(fault, advice)
        raise EnvError(f"{message} (docs/settings.md)") from None


def _parse(env: Env) -> Settings:
    read = Settings(
        broker_url=env.str("CELERY_BROKER_URL", "", validate=_validate_broker) or "redis://127.0.0.1:6379/0",
        host=env.str("HOST", "") or LOOPBACK,
        port=env.int("PORT", 8000, validate=validate.Range(1, HIGHEST_PORT)),
        gpu_device=env.str("GPU_DEVICE", None),
        visible_devices=env.str("CUDA_VISIBLE_DEVICES", None),
        max_workers=env.int("MAX_WORKERS", None, validate=validate.Range(1, 64)),
        log_level=env.str("LOG_LEVEL", "INFO", validate=_validate_level).upper(),
        log_format=env.str("LOG_FORMAT", CONSOLE, validate=validate.OneOf((CONSOLE, JSON))),
        otlp_endpoint=env.str("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", validate=_COLLECTOR)
        or env.str("OTEL_EXPORTER_OTLP_ENDPOINT", "", validate=_COLLECTOR)
        or None,
        enable_device_metrics=env.bool("ENABLE_DEVICE_METRICS", False),
        state_dir=Path(env.str("STATE_DIR", "") or _state_folder(env.str("XDG_STATE_HOME", ""))),
        lease_dir=Path(env.str("LEASE_DIR", "") or _lease_folder()),
        log_dir=Path(env.str("LOG_DIR", "") or "logs"),
        drain_seconds=env.float("DRAIN_SECONDS", 1800.0, validate=validate.Range(0)),
        drain_file=Path(file) if (file := env.str("DRAIN_FILE", "")) else None,
        job_ttl=env.int("JOB_TTL", 86_400, validate=validate.Range(1, _LONGEST_S)),
        max_source=1 * MIB,
        max_body=64 * MIB,
        max_batch=1000,
        max_queue=env.int("MAX_QUEUE", 100_000, validate=validate.Range(1)),
        records_memory=env.int("RECORDS_MEMORY_MIB", 4096, validate=validate.Range(1)) * MIB,
        runner_memory=_runner_memory(env),
        sandbox=_required_layers(env.str("SANDBOX", AVAILABLE, validate=_validate_layers)),
        arena_memory=_mebibytes(env.int("ARENA_MEMORY_MIB", None, validate=validate.Range(1))),
        build_cache=env.int("BUILD_CACHE_MIB", 4096, validate=validate.Range(0)) * MIB,
        shared_builds=env.int("SHARED_BUILDS_MIB", 0, validate=validate.Range(0)) * MIB,
        warm_reference=env.float("WARM_REFERENCE_SECONDS", 0.0, validate=validate.Range(0)),
        context_reuses=env.int("CONTEXT_REUSES", 0, validate=validate.Range(0)),
        build_for=env.str("BUILD_FOR", "", validate=_ARCHITECTURE) or None,
        require_api_keys=env.str("REQUIRE_API_KEYS", AUTO, validate=validate.OneOf((AUTO, ON, OFF))),
        api_keys_file=Path(env.str("API_KEYS_FILE", "") or "api_keys.json"),
        key_requests_per_minute=env.int("KEY_REQUESTS_PER_MINUTE", 1200, validate=validate.Range(1, 1_000_000)),
        key_max_jobs=env.int("KEY_MAX_JOBS", 1000, validate=validate.Range(1, 1_000_000)),
        webhook_hosts=tuple(_listed(env.str("WEBHOOK_HOSTS", "", validate=_validate_hosts))),
        allowed_hosts=tuple(_listed(env.str("ALLOWED_HOSTS", "", validate=_validate_hosts))),
        key_max_priority=env.int("KEY_MAX_PRIORITY", HIGHEST_PRIORITY, validate=validate.Range(0, HIGHEST_PRIORITY)),
        keep_sources=env.bool("KEEP_SOURCES", True),
    )
    if read.shared_builds and not read.build_cache:
        raise EnvError("SHARED_BUILDS_MIB shares builds of the local cache: set BUILD_CACHE_MIB too")
    return read


def _runner_memory(env: Env) -> int:
    """As it is set, else what one worker's jobs may take. The stack sets it where a machine has several workers."""
    if env.str("RUNNER_MEMORY_MIB", ""):
        return env.int("RUNNER_MEMORY_MIB", validate=validate.Range(1)) * MIB
    share = runner_memory_share(env.int("MAX_WORKERS", None) or USUAL_JOBS_AT_ONCE)
    return share // MIB * MIB


def _state_folder(state_home: str) -> Path:
    """A folder whose name no other user of the machine can take first."""
    if os.geteuid() == 0:
        return Path("/var/lib/kernel-eval")  # Not root's home: the submissions' own users cannot pass through it.
    configured = Path(state_home)
    try:
        return (configured if configured.is_absolute() else Path.home() / ".local" / "state") / "kernel-eval" / "node"
    except RuntimeError:  # A user without a home. The code that opens the folder checks its owner.
        return Path(tempfile.gettempdir()) / f"kernel-eval-{os.geteuid()}"


def _lease_folder() -> Path:
    """A folder of this host that is the same in every process of a user, because jobs queue there for devices.

    `tasks.node.device_lease` checks the owner of its folder inside, which matters if this is the folder for
    temporary files.
    """
    run = Path("/run")
    return run / "kernel-eval" if os.geteuid() == 0 and os.access(run, os.W_OK) else Path(tempfile.gettempdir())


def _mebibytes(count: int | None) -> int | None:
    return None if count is None else count * MIB


def _validate_broker(text: str) -> None:
    """Without the text in the message, as it may hold a password."""
    with suppress(ValueError):
        if not text or (_BROKER.match(text) and urlsplit(text).port != 0):
            return
    raise ValidationError(
        "Must be redis://[:PASSWORD@]HOST[:PORT][/NUMBER] or rediss://…; in a password / ? # [ are %2F %3F %23 %5B."
    )


def _validate_level(text: str) -> None:
    if text.upper() not in LOG_LEVELS:
        raise ValidationError(f"Must be one of: {', '.join(LOG_LEVELS).lower()}.")


def _required_layers(text: str) -> tuple[str, ...]:
    return STRICT_LAYERS if text == STRICT else tuple(_names(text))


def _names(text: str) -> list[str]:
    return [] if text == AVAILABLE else [name.strip() for name in text.split(",")]


def _listed(text: str) -> list[str]:
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def _validate_hosts(text: str) -> None:
    wrong = [name for name in _listed(text) if name != "*" and not _HOST.fullmatch(name)]
    if wrong:
        raise ValidationError(f"Must be hosts such as example.org, separated by commas, or *; not {wrong[0]!r}.")


def _validate_layers(text: str) -> None:
    unknown = [name for name in _names(text) if text != STRICT and name not in SANDBOX_LAYERS]
    if unknown:
        raise ValidationError(f"Must be {AVAILABLE}, {STRICT}, or some of: {', '.join(SANDBOX_LAYERS)}.")
