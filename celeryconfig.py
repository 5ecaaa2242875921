"""Celery's configuration. Celery carries messages; what is true about a job is in its record (tasks/records.py)."""

from __future__ import annotations

import ssl

from domain.settings import settings

# Where messages go. The same Redis holds the job records, so a message and its record are lost or kept together.
broker_url = settings().broker_url
# A rediss:// address that does not say how far to trust (?ssl_cert_reqs=…) would have any certificate accepted here,
# with a warning, while the records' client asks for a good one. Where it does say, both follow it and this is not used.
broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if broker_url.startswith("rediss://") else None
# What workers load; the API publishes by name and loads neither.
imports = ("tasks.evaluation", "tasks.worker")

# JSON only: a message that is unpickled runs code.
accept_content = ["json"]
task_serializer = "json"
result_serializer = "json"
event_serializer = "json"
# One queue for every kind of kernel; which worker takes a job does not matter as long as all devices are alike.
task_default_queue = "evaluate"
# The job record is the result. Celery's own would also subscribe each publisher to it and leak (celery#6963).
result_backend = "disabled://"
task_ignore_result = True

# A message is acknowledged when its job's record has moved on, so that it is not gone with a worker that dies.
task_acks_late = True
# Redelivery after a pool child's death never ends (67 runs in 10 s measured); tasks/worker.py tries again, bounded.
task_reject_on_worker_lost = False
# Each message is acknowledged once, whatever its end: what happens next is decided by the record.
task_acks_on_failure_or_timeout = True
# A last resort against a pool child that no longer runs Python; tasks/watch.py ends what is merely stuck, much earlier.
# Waiting for the device counts here, so it is far above two timeouts of 600 s.
task_time_limit = 2 * 3600

# A dead pool child is seen after 0.1 s instead of 2 to 5 s.
worker_pool = "tasks.pool:FastTaskPool"
# Jobs that a worker handles at once: builds overlap, the device lease lets one at a time touch the device.
worker_concurrency = settings().max_workers or 2
# Pool children are trusted and persist; strangers' code runs in processes beneath them. (No max_tasks_per_child.)
# Wait so long for the result of a child that is gone before its task counts as failed.
worker_lost_wait = 0.2
# A child on a busy machine may need long to say that it is up, and one that is late is killed.
worker_proc_alive_timeout = 60
# Take no message without a free child: another worker may be idle.
worker_prefetch_multiplier = 1
worker_disable_prefetch = True

broker_transport_options = {
    # After so long an unacknowledged message is delivered again. Above task_time_limit, else there would be endless
    # duplicates (celery#5935); that it is long costs nothing, as the reconciler finds lost jobs within seconds.
    "visibility_timeout": 4 * 3600,
    # Half-open connections are noticed; longer than the worker's blocking read.
    "socket_timeout": 30,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 25,
}
# Redis may start after the worker, and may be away for as long as it likes.
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
# A running job goes on while Redis is away: its record still knows whose it is when Redis is back.
worker_cancel_long_running_tasks_on_connection_loss = False
# A publisher tries for about 0.5 s; a message that still fails is published by the reconciler, the job is accepted.
task_publish_retry_policy = {"max_retries": 3, "interval_start": 0.05, "interval_step": 0.1, "interval_max": 0.3}

# Flower shows what the workers do; costs some of the rate of empty tasks, nothing beside a kernel. No event for what
# the API sends: it would be a second message for each job, a third of what publishing a batch costs.
worker_send_task_events = True
# Reconnecting hangs have been cured by leaving these off (celery#8030); they have no use here. By the command line:
# --without-gossip --without-mingle.
# Logging is set up by the worker's --loglevel; print statements of a library are not log records.
worker_redirect_stdouts = False
