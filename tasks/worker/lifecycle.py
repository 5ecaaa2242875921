"""Celery signal handlers of a worker: start-up checks, heartbeat and reconciler, pool children and their deaths."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any

from billiard import current_process
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    celeryd_after_setup,
    task_failure,
    task_revoked,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from redis.exceptions import RedisError

from domain.fault import InfrastructureFault
from domain.settings import settings
from sandbox.isolation import layer_probe
from sandbox.isolation.rlimits import die_with_parent
from sandbox.protocol.cuda_driver import ONE_QUEUE
from tasks.evaluation import self_test
from tasks.evaluation.celery_task import requeue_or_end
from tasks.fleet.heartbeat import Heartbeat
from tasks.fleet.name_claim import claim
from tasks.fleet.quarantine import Quarantine
from tasks.jobs.job_queue import COMMON, queue_of_gpu, queue_of_worker
from tasks.jobs.job_store import JobStore
from tasks.node import device_lease, log_config
from tasks.node.broker_settings import RedisTooOld, broker_warnings, log_broker_warnings, require_version
from tasks.node.device_info import DeviceError, own_device
from tasks.node.redis_client import connect
from tasks.node.sandbox_preflight import probe_sandbox
from tasks.worker.reconciler import Reconciler
from tasks.worker.worker_gauges import Gauges

log = logging.getLogger(__name__)


class MainProcessThreads:
    """The threads of a worker's main process. Pool children are forked from it and have none of them."""

    def __init__(self, consumer: Any) -> None:
        redis, name = connect(), consumer.hostname
        ttl_s = settings().job_ttl
        device, slots = own_device(), consumer.pool.num_processes
        self._gauges = Gauges(device, settings().state_dir / "builds")
        quarantine = Quarantine(redis, name, lambda on: take_jobs(consumer, on), self_test.failure)
        try:
            quarantine.clear()
        except RedisError as error:
            log.warning("the quarantine record of an earlier worker of this name stays for now: %s", error)
        self._threads: list[Any] = [
            Heartbeat(redis, name, device, slots, _layers, lambda: quarantine.reason, self._gauges.read),
            Reconciler(redis, JobStore(redis, ttl_s), ttl_s),
            quarantine,
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()
        self._gauges.stop()


_threads_of_worker: list[MainProcessThreads] = []
_layers: layer_probe.Layers = {}


def take_jobs(consumer: Any, on: bool) -> None:
    """Make the worker take jobs from its queues, or stop; running jobs continue. Safe from any thread."""
    queues = consumer.app.amqp.queues

    def change(queue: str) -> None:
        if on:
            queues.select_add(queues[queue])
        else:
            queues.deselect(queue)
        if consumer.task_consumer is None:
            return  # Not connected now; the next connection consumes the selected queues.
        if on:
            consumer.add_task_queue(queue)
        else:
            consumer.task_consumer.cancel_by_queue(queue)

    for queue in (COMMON, *worker_queues(consumer.hostname)):
        consumer.call_soon(change, queue)


def load_telemetry(**_: Any) -> None:
    """Before the pool starts: import what its children trace with; exits if that is wanted, but not installed."""
    if settings().otlp_endpoint is not None:
        import_module("tasks.node.telemetry")


def pin_device(**_: Any) -> None:
    """Before the pool starts: restrict its children to this worker's device. Exits if the device does not exist."""
    try:
        # The children inherit the answer. One whose card vanishes later then claims a job, and its failure counts.
        # Without a claim it would use up the messages of all other workers, and never be quarantined.
        device = own_device()
    except DeviceError as error:
        # Celery only logs what a signal handler raises; without its GPU this worker must not take jobs.
        raise SystemExit(f"{error}") from error
    # By UUID, even if an index was configured: CUDA and the driver number devices differently, and the sandbox finds
    # the device node that a submission may open by this name.
    os.environ["CUDA_VISIBLE_DEVICES"] = device.name if device.is_gpu else ""  # noqa: TID251 - written, not read
    for name in ONE_QUEUE:
        # With one queue for all its streams the referee could not release a stream that waits
        # (profiling.window.device_clock).
        os.environ.pop(name, None)  # noqa: TID251 - removed, not read


def claim_name(sender: Any, **_: Any) -> None:
    """Before the pool starts: exit if Redis is too old, or another live worker has this worker's name."""
    try:
        redis = connect()
        require_version(redis)
        claim(redis, sender.hostname)
    except RedisTooOld as error:
        raise SystemExit(f"{error}") from error
    except RedisError as error:
        log.warning("Redis is unreachable, so the name may also belong to a worker of another machine: %s", error)


def check_sandbox(**_: Any) -> None:
    """Before the pool starts: exit if a required sandbox layer is missing, or another user could disturb jobs."""
    try:
        device_lease.create_folder()
    except (InfrastructureFault, OSError) as error:
        raise SystemExit(f"jobs cannot queue for a device: {error}; LEASE_DIR is the folder") from error
    _layers.update(probe_sandbox(gpu=own_device().is_gpu))


def outlive_reader(**_: Any) -> None:
    """Before signals are handled: redirect stdout, because the process that read it may have died.

    Celery's signal handlers write to this stream first, and a broken pipe would end them before they do their work.
    """
    sys.__stdout__ = open(os.devnull, "w", encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115 - for good


def write_shutdown_notice(how: str, **_: Any) -> None:
    """In a signal handler, where no lock may be taken: write what Celery would log."""
    with suppress(OSError):
        os.write(1, f"worker: {how} shutdown (MainProcess)\n".encode())


def worker_queues(name: str) -> tuple[str, str]:
    """The worker's two queues beside the common one: for jobs of its GPU model, and for jobs that others failed."""
    return queue_of_gpu(own_device().model), queue_of_worker(name)


def add_worker_queues(sender: str, instance: Any, **_: Any) -> None:
    """Consume the worker's own queues in addition to those of its command line."""
    for queue in worker_queues(sender):
        instance.app.amqp.queues.select_add(queue)
    log_config.process_fields["worker"] = sender


def start_threads(sender: Any, **_: Any) -> None:
    """Start the threads, once the worker's consumer is connected and its pool is up."""
    for name, layer in _layers.items():
        log.log(logging.INFO if layer.active else logging.WARNING, "sandbox: %s", layer.line(name))
    try:
        log_broker_warnings(broker_warnings(connect()))
    except RedisError as error:
        log.warning("the settings of Redis could not be read: %s", error)
    _threads_of_worker.append(MainProcessThreads(sender))


def stop_threads(**_: Any) -> None:
    """Stop the threads, after the worker has finished its jobs."""
    while _threads_of_worker:
        _threads_of_worker.pop().stop()


def set_up_child(**_: Any) -> None:
    """Prepare a new pool child. It does not use CUDA, because a child that starts too slowly is killed."""
    # A process group of its own: its children are killed with it, and Ctrl-C in a terminal only reaches the main
    # process, which lets the job finish.
    os.setpgid(0, 0)
    die_with_parent(os.getppid())
    # Importing takes seconds that the first job then need not wait for. On a host's few cores only the child that gets
    # the first job does it. The thread starts no process, because processes end with the thread that started them.
    if own_device().is_gpu or current_process().index == 0:
        Thread(target=_load_pipeline, name="pipeline's imports", daemon=True).start()


def trace_child(**_: Any) -> None:
    """Trace a new pool child's tasks. After the fork, which the exporter's thread would not survive."""
    if settings().otlp_endpoint is not None:
        from tasks.node import telemetry

        telemetry.start("kernel-eval-worker")


def _load_pipeline() -> None:
    try:
        import_module("tasks.evaluation.pipeline")
    except Exception:  # The first job fails with the same error and reports it.
        log.exception("the pipeline could not be imported before the first job")


def close_worker(**_: Any) -> None:
    """Release a pool child's resources before it exits."""
    if "tasks.node.telemetry" in sys.modules:
        from tasks.node import telemetry

        telemetry.stop()
    if "tasks.runtime.worker_context" in sys.modules:
        from tasks.runtime.worker_context import worker_context

        if worker_context.cache_info().currsize:
            worker_context().close()


def note_lost_child(exception: BaseException, task_id: str, **_: Any) -> None:
    """In the main process: requeue the job of a pool child that died or hit the hard limit; no fault of the kernel."""
    if not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    _requeue_under(task_id, str(exception))


def note_terminated_child(request: Any, terminated: bool, **_: Any) -> None:
    """In the main process: requeue the job whose task an operator terminated (`revoke`), which is no task's failure."""
    if terminated:
        _requeue_under(request.id, "an operator terminated its task", proven=False)


def _requeue_under(task_id: str, reason: str, *, proven: bool = True) -> None:
    """Requeue the job that runs under this message, whose pool child is gone. `proven` as in `JobStore.requeue`."""
    records = JobStore(connect(), settings().job_ttl)
    try:
        running = records.queue.running_under(task_id)
        if running is not None:
            job_id, attempt = running
            with log_config.about(job_id=job_id, attempt=attempt):
                log.error("job %s: attempt %d: its worker process died: %s", job_id, attempt, reason)
                requeue_or_end(records, job_id, attempt, reason, proven=proven)
    except RedisError as error:
        log.warning("message %s: its worker process died; the reconciler will requeue its job: %s", task_id, error)


after_setup_logger.connect(log_config.format_handlers)
after_setup_task_logger.connect(log_config.format_handlers)
worker_init.connect(outlive_reader)
worker_init.connect(load_telemetry)
worker_init.connect(pin_device)
worker_init.connect(check_sandbox)
worker_init.connect(claim_name)
celeryd_after_setup.connect(add_worker_queues)
worker_ready.connect(start_threads)
worker_shutting_down.connect(write_shutdown_notice)
worker_shutdown.connect(stop_threads)
worker_process_init.connect(set_up_child)
worker_process_init.connect(trace_child)
worker_process_shutdown.connect(close_worker)
task_failure.connect(note_lost_child)
task_revoked.connect(note_terminated_child)
