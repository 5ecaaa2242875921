"""Celery's configuration. Celery carries messages; what is true about a job is in its record
(tasks/jobs/job_store.py)."""

from __future__ import annotations

import ssl

from domain.settings import settings

# Where messages go. The same Redis holds the job records, so a message and its record are lost or kept together. One
# can still be lost, whatever is set below, between BRPOP and kombu's own note of it when Redis or the worker dies there
# (kombu#305): the reconciler publishes it again.
broker_url = settings().broker_url
# A rediss:// address that does not say how far to trust (?ssl_cert_reqs=…) would have any certificate accepted here,
# with a warning, while the records' client asks for a good one. Where it does say, both follow it and this is not used.
broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if broker_url.startswith("rediss://") else None
# What workers load; the API publishes by name and loads neither.
imports = ("tasks.evaluation.celery_task", "tasks.worker.lifecycle")

# JSON only: a message that is unpickled runs code.
accept_content = ["json"]
# What we publish: nothing but that there is work (tasks/jobs/job_queue.py). The source is in the record.
task_serializer = "json"
# No results are sent (below); set so that no default of a later version brings pickle back.
result_serializer = "json"
# What Flower reads.
event_serializer = "json"
# One queue for every kind of kernel. Beside it there is one for each model of GPU, for jobs that name it, and one for
# each worker, for jobs that another has failed (tasks/worker/lifecycle.py). The order of jobs is not theirs
# (docs/adr/0021).
task_default_queue = "evaluate"
# The job record is the result. Celery's own would also subscribe each publisher to it and leak (celery#6963).
result_backend = "disabled://"
# The same for a worker whose command line names a backend.
task_ignore_result = True
# One object for all threads, as it keeps nothing. Each thread of the API that publishes would else look one up among
# the entry points of all installed packages: 5 ms, and a wave of submissions meets many new threads.
result_backend_thread_safe = True

# A message is acknowledged when its job's record has moved on, so that it is not gone with a worker that dies.
task_acks_late = True
# Redelivery after a pool child's death is immediate and has no bound; tasks/worker/lifecycle.py tries again, three
# times in all.
task_reject_on_worker_lost = False
# Each message is acknowledged once, whatever its end: what happens next is decided by the record.
task_acks_on_failure_or_timeout = True
# A last resort against a pool child that no longer runs Python; tasks/evaluation/attempt_monitor.py ends what is merely
# stuck, much earlier. Waiting for the device counts here, so it is far above two timeouts of 600 s.
task_time_limit = 2 * 3600
# (The timer of each task stays, cancelled, in the worker's main process for that long: 480 bytes, measured.)

# A dead pool child is seen after 0.1 s instead of 2 to 5 s.
worker_pool = "tasks.worker.prefork_pool:FastTaskPool"
# Jobs that a worker handles at once: builds overlap, the device lease lets one at a time touch the device.
worker_concurrency = settings().max_workers or 2
# Pool children are trusted and persist; strangers' code runs in processes beneath them. (No max_tasks_per_child.)
# Wait so long for the result of a child that is gone before its task counts as failed.
worker_lost_wait = 0.2
# A child on a busy machine may need long to say that it is up, and one that is late is killed.
worker_proc_alive_timeout = 60
# At most one message a child is held: more would wait behind a job of minutes while another worker is idle.
worker_prefetch_multiplier = 1
# And none at all without a free child. Redis only, which is what we have.
worker_disable_prefetch = True

broker_transport_options = {
    # After so long an unacknowledged message is delivered again. Above task_time_limit, else there would be endless
    # duplicates (celery#5935); that it is long costs nothing, as the reconciler finds lost jobs within seconds.
    "visibility_timeout": 4 * 3600,
    # A read that says nothing for so long is given up; longer than the worker's blocking read, which would else end
    # in an error every time.
    "socket_timeout": 30,
    # A host that swallows packets is not waited for at each attempt as long as TCP would.
    "socket_connect_timeout": 5,
    # A peer that vanished without a word (a node's power, a firewall) is noticed by the kernel's probes.
    "socket_keepalive": True,
    # A connection that was idle longer is asked whether it still works before it is used.
    "health_check_interval": 25,
}
# Redis may start after the worker: they are started in any order.
broker_connection_retry_on_startup = True
# And it may be away for as long as it likes (None: no last attempt). Celery's pauses between attempts grow by 2 s and
# cannot be set: after 60 s without Redis a worker may take its next message up to 16 s later. Jobs that it runs
# already do not wait for that, their records have connections of their own (tasks/node/redis_client.py).
broker_connection_max_retries = None
# A running job goes on while Redis is away: its record still knows whose it is when Redis is back.
worker_cancel_long_running_tasks_on_connection_loss = False
# A publisher tries for about 0.5 s; a message that still fails is published by the reconciler, the job is accepted.
task_publish_retry_policy = {"max_retries": 3, "interval_start": 0.05, "interval_step": 0.1, "interval_max": 0.3}

# Flower shows what the workers do; costs some of the rate of empty tasks, nothing beside a kernel. No event for what
# the API sends: it would be a second message for each job, a third of what publishing a batch costs.
worker_send_task_events = True
# Gossip and mingle have no settings here: leave them off by the command line, --without-gossip --without-mingle. They
# have no use in this service, and reconnecting hangs have been cured by leaving them off (celery#8030).
# Logging is set up by the worker's --loglevel; print statements of a library are not log records.
worker_redirect_stdouts = False
