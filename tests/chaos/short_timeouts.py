"""The Celery application with every wait for the dead turned down: `celery --app tests.chaos.short_timeouts worker`."""

from __future__ import annotations

from tasks.app import app
from tasks.fleet import heartbeat, quarantine
from tasks.jobs import job_store
from tasks.worker import reconciler

__all__ = ["app"]

# Still many times the 0.2 s of a pulse: an owner on a busy machine must not be given up.
job_store.PULSE_TTL_S = 3
job_store.LAST_PAUSE_S = 1
heartbeat.EVERY_S = 0.5
heartbeat.TTL_S = 3
reconciler.EVERY_S = 0.3
reconciler.SURE_S = 1.5
reconciler.LOCK_TTL_S = 2
quarantine.EVERY_S = 0.3
quarantine.TEST_AGAIN_S = 3.0
