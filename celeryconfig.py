"""Celery's configuration. Celery only carries messages; the job's record has the truth (tasks/jobs/job_store.py)."""

from __future__ import annotations

import ssl
import warnings

from environs import EnvError

from domain.settings import settings

try:
    settings()
except EnvError as error:
    raise SystemExit(f"{error}") from None

# A worker is root to give each submission a user of its own (docs/security.md). The warning is about pickle.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

# The broker. The same Redis holds the job records, so a message and its record are lost or stored together. If Redis or
# the worker dies between BRPOP and kombu's own record of the message, it is lost whatever is set below (kombu#305). The
# reconciler then publishes another one.
broker_url = settings().broker_url
# Without ?ssl_cert_reqs=… in a rediss:// URL, Celery would accept any certificate, with a warning, but the records'
# client requires a valid one. With it, both follow the URL, and this setting is not used.
broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if broker_url.startswith("rediss://") else None
# JSON only: unpickling a message could run code.
accept_content = ["json"]
# Messages only say that a job is waiting (tasks/jobs/job_queue.py). The source is in the record.
task_serializer = "json"
# No results are sent (see below); set so that the default of a later version cannot bring pickle back.
result_serializer = "json"
# Format of the events for Flower.
event_serializer = "json"
# One queue for every kind of kernel. There is also a queue for each GPU model, for jobs that name it, and one for each
# worker, for jobs that another worker has failed (tasks/worker/lifecycle.py). The queues do not decide the order of
# jobs (docs/adr/0005).
task_default_queue = "evaluate"
# The job record is the result. Celery's own results would also subscribe each publisher, and leak (celery#6963).
result_backend = "disabled://"
# The same, for a worker whose command line names a result backend.
task_ignore_result = True
# One backend object for all threads, as it has no state. Otherwise each publishing thread of the API would search the
# entry points of all installed packages for it: 5 ms, and many submissions at once meet many new threads.
result_backend_thread_safe = True

# A worker acknowledges a message after the job's record has moved on, so a dying worker does not lose it.
task_acks_late = True
# Redelivery after a pool child's death is immediate and unlimited; tasks/worker/lifecycle.py requeues instead, up to
# three attempts in all.
task_reject_on_worker_lost = False
# Each message is acknowledged once, whatever the outcome: the record decides what happens next.
task_acks_on_failure_or_timeout = True
# A last resort against a pool child that no longer runs Python. tasks/evaluation/attempt_monitor.py ends a child that
# is merely stuck, much earlier. The time includes waiting for the device, so it is far above two timeouts of 600 s.
task_time_limit = 2 * 3600
# (Each task's timer stays, cancelled, in the worker's main process for that long: 480 bytes, measured.)

# Notices a dead pool child after 0.1 s instead of 2 to 5 s.
worker_pool = "tasks.worker.prefork_pool:FastTaskPool"
# Concurrent jobs of a worker: builds overlap, but the device lease lets one job at a time use the device.
worker_concurrency = settings().max_workers or 2
# Pool children are trusted and long-lived, so there is no max_tasks_per_child; submissions run in processes below them.
# Seconds to wait for the result of a child that is gone, before its task counts as failed.
worker_lost_wait = 0.2
# A child on a busy machine may need long to report that it is up, and a late child is killed.
worker_proc_alive_timeout = 60
# At most one unacknowledged message per child: more would wait behind a job of minutes while another worker is idle.
worker_prefetch_multiplier = 1
# And none without a free child. Only available with Redis, which is the broker here.
worker_disable_prefetch = True

broker_transport_options = {
    # Seconds after which an unacknowledged message is delivered again. Below task_time_limit, duplicates would be
    # endless (celery#5935). A long time costs nothing, because the reconciler finds lost jobs within seconds.
    "visibility_timeout": 4 * 3600,
    # Seconds without data after which a read is given up; longer than the worker's blocking read, which would
    # otherwise always end in an error.
    "socket_timeout": 30,
    # A host that drops packets would otherwise delay each connection as long as TCP's own timeout.
    "socket_connect_timeout": 5,
    # The kernel's probes notice a peer that vanished silently (a power failure, a firewall).
    "socket_keepalive": True,
    # A connection that was idle for longer is tested before it is used.
    "health_check_interval": 25,
}
# The worker may start before Redis, because services start in any order.
broker_connection_retry_on_startup = True
# Redis may also be away for any time (None: unlimited retries). Celery's pauses between retries grow by 2 s and cannot
# be configured: after 60 s without Redis a worker may take its next message up to 16 s later. Running jobs do not wait
# for that, because their records have connections of their own (tasks/node/redis_client.py).
broker_connection_max_retries = None
# A Redis that takes no writes refuses to hand out a message. The worker then waits, and does not end.
broker_channel_error_retry = True
worker_consumer = "tasks.worker.waiting_consumer:WaitingConsumer"
# A running job continues while Redis is away: its record still names its owner when Redis is back.
worker_cancel_long_running_tasks_on_connection_loss = False
# A publisher retries for about 0.5 s; if that fails, the job is accepted, and the reconciler publishes its message.
task_publish_retry_policy = {"max_retries": 3, "interval_start": 0.05, "interval_step": 0.1, "interval_max": 0.3}

# Flower needs these events; they cost some of the rate of empty tasks, and nothing compared with a kernel. The API
# sends no events: they would be a second message for each job, a third of the cost of publishing a batch.
worker_send_task_events = True
# Gossip and mingle have no settings here; the command line disables them: --without-gossip --without-mingle. This
# service does not use them, and disabling them has cured hangs at reconnection (celery#8030).
# The worker's --loglevel configures logging; print statements of a library are no log records.
worker_redirect_stdouts = False
