"""A Celery worker that only builds, without a GPU: `celery --app tasks.worker.build_worker worker`.

Its messages name queued jobs (`tasks/jobs/submit.py`). Its main process loads no GPU library.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from celery import Celery
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
)

from domain.settings import settings
from sandbox.isolation import layer_probe
from sandbox.isolation.rlimits import die_with_parent
from tasks.jobs.submit import BUILD_QUEUE, BUILD_TASK
from tasks.node import log_config
from tasks.node.redis_client import connect
from tasks.node.sandbox_preflight import probe_sandbox

# Without the imports of `celeryconfig`, which make a worker one that judges.
app = Celery(
    "kernel-eval-build", config_source="celeryconfig", changes={"imports": (), "task_default_queue": BUILD_QUEUE}
)

log = logging.getLogger(__name__)

_layers: layer_probe.Layers = {}
_job_builders: list[Any] = []
"""The `JobBuilder` of this pool child, once it has had a message."""


def build(task: Any, job_id: str) -> str:
    """Make the missing builds of a job. Returns what was done, which only Flower shows."""
    if not _job_builders:
        from tasks.prebuild.job_builds import JobBuilder  # It loads torch, which only pool children may load.

        _job_builders.append(JobBuilder(connect(), task.request.hostname))
    return f"{_job_builders[0].build(job_id)} built"


def check_node(sender: Any, **_: Any) -> None:
    """Before the pool starts: exit if builds have no place, or if a required sandbox layer is missing."""
    if not settings().shared_builds:
        raise SystemExit("there is nowhere to put builds: set SHARED_BUILDS_MIB, here, for the API and for the workers")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # noqa: TID251 - written, not read
    log_config.process_fields["worker"] = sender.hostname
    _layers.update(probe_sandbox(gpu=False))


def set_up_log(logger: logging.Logger, **_: Any) -> None:
    """Set level and format, which the command line of a worker under `stack/` sets."""
    log_config.format_handlers(logger)
    logger.setLevel(settings().log_level)


def log_layers(**_: Any) -> None:
    """Once the log is set up: the sandbox layers of this node."""
    for name, layer in _layers.items():
        log.log(logging.INFO if layer.active else logging.WARNING, "sandbox: %s", layer.line(name))


def set_up_child(**_: Any) -> None:
    """Prepare a new pool child, which ends with its worker, and its builders with it."""
    os.setpgid(0, 0)
    die_with_parent(os.getppid())


def close_child(**_: Any) -> None:
    """Release a pool child's resources before it exits."""
    while _job_builders:
        _job_builders.pop().close()


# The message is acknowledged before the build: a build that kills its pool child must not come back.
app.task(name=BUILD_TASK, bind=True, acks_late=False)(build)
after_setup_logger.connect(set_up_log)
after_setup_task_logger.connect(set_up_log)
worker_init.connect(check_node)
worker_ready.connect(log_layers)
worker_process_init.connect(set_up_child)
worker_process_shutdown.connect(close_child)
