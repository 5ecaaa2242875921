"""The Celery application: `celery --app tasks.app worker`. Imports nothing heavy, so the API publishes with it too."""

from __future__ import annotations

from celery import Celery

app = Celery(
    "kernel-eval",
    config_source="celeryconfig",
    # A worker imports these. The API imports neither, because it publishes by task name.
    include=("tasks.evaluation.celery_task", "tasks.worker.lifecycle"),
)
