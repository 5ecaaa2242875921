"""What happens around the tasks of a worker: its heartbeat and reconciler, its pool children, their deaths."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    celeryd_after_setup,
    task_failure,
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
from tasks.evaluation.celery_task import try_again
from tasks.evaluation.shared_counters import board
from tasks.fleet.heartbeat import Heartbeat
from tasks.fleet.name_claim import claim
from tasks.fleet.quarantine import Quarantine
from tasks.jobs.job_queue import COMMON, line_of_gpu, line_of_worker
from tasks.jobs.job_store import JobRecords
from tasks.node import device_info, device_lease, log_config
from tasks.node.broker_settings import broker_warnings, log_broker_warnings
from tasks.node.redis_client import connect
from tasks.node.sandbox_preflight import held
from tasks.worker.reconciler import Reconciler
from tasks.worker.toolchain_probe import OwnToolchain
from tasks.worker.worker_gauges import Gauges

log = logging.getLogger(__name__)


class Attendants:
    """The threads of a worker's main process. Pool children are forked beside them and have none of them."""

    def __init__(self, consumer: Any) -> None:
        redis, name = connect(), consumer.hostname
        ttl_s = settings().job_ttl
        found, slots = device_info.detect(), consumer.pool.num_processes
        self._gauges = Gauges(found, settings().state_dir / "builds")
        quarantine = Quarantine(redis, name, lambda on: take_jobs(consumer, on), self_test.failure)
        try:
            quarantine.clear()
        except RedisError as error:
            log.warning("what is known of an earlier worker of this name stays for now: %s", error)
        self._toolchain = OwnToolchain()
        if settings().shared_builds:
            self._toolchain.start()
        told = lambda: quarantine.reason, self._gauges.read, lambda: self._toolchain.identity
        self._threads: list[Any] = [
            Heartbeat(redis, name, found, slots, _layers, *told),
            Reconciler(redis, JobRecords(redis, ttl_s), ttl_s),
            quarantine,
        ]
        if settings().otlp_endpoint is not None:
            from tasks.worker.trace_exporter import Tracing  # Its packages may not be there where no endpoint is.

            self._threads.append(Tracing(connect(), JobRecords(redis, ttl_s)))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()
        self._gauges.stop()
        self._toolchain.stop()


_attendants: list[Attendants] = []
_layers: layer_probe.Layers = {}


def take_jobs(consumer: Any, on: bool) -> None:
    """Has the worker take jobs from its queues, or stop doing so; what it runs goes on. From any thread."""
    queues = consumer.app.amqp.queues

    def change(queue: str) -> None:
        if on:
            queues.select_add(queues[queue])
        else:
            queues.deselect(queue)
        if consumer.task_consumer is None:
            return  # Without a connection now; the next one takes what is selected.
        if on:
            consumer.add_task_queue(queue)
        else:
            consumer.task_consumer.cancel_by_queue(queue)

    for queue in (COMMON, *own_queues(consumer.hostname)):
        consumer.call_soon(change, queue)


def look_for_telemetry(**_: Any) -> None:
    """Before the pool starts: an endpoint that traces are to be sent to wants the packages that send them."""
    if settings().otlp_endpoint is None:
        return
    try:
        find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError as error:
        told = "OTEL_EXPORTER_OTLP_ENDPOINT is set: pip install -c constraints.txt --group telemetry, or unset it"
        raise SystemExit(f"{told} ({error})") from error


def write_json(logger: logging.Logger, **_: Any) -> None:
    """Celery has given this logger its handlers."""
    for handler in logger.handlers:
        handler.setFormatter(log_config.formatter(settings().log_format))


def pin_device(**_: Any) -> None:
    """Before the pool starts: its children see this worker's device and no other. Exits where that is not there."""
    try:
        found = device_info.detect()
    except device_info.DeviceError as error:
        # Celery logs and forgets what a signal's receiver raises; without its GPU this worker must not take jobs.
        raise SystemExit(f"{error}") from error
    # By its UUID, also where an index was given: CUDA counts in another order than the driver, and which node a
    # submission may open is told by that name.
    os.environ["CUDA_VISIBLE_DEVICES"] = found.name if found.is_gpu else ""  # noqa: TID251 - written, not read
    for name in ONE_QUEUE:
        # With one queue for all its streams the referee could not let go of one that waits
        # (profiling.window.device_clock).
        os.environ.pop(name, None)  # noqa: TID251 - removed, not read


def claim_name(sender: Any, **_: Any) -> None:
    """Before the pool starts: nobody else may live under this worker's name."""
    try:
        claim(connect(), sender.hostname)
    except RedisError as error:
        log.warning("whether another machine has a worker of this name is not known: %s", error)


def look_at_sandbox(**_: Any) -> None:
    """Before the pool starts: what SANDBOX requires has to hold the submissions, and no other user may disturb jobs."""
    try:
        device_lease.check_folder()
    except (InfrastructureFault, OSError) as error:
        raise SystemExit(f"jobs cannot queue for a device: {error}; LEASE_DIR is the folder") from error
    _layers.update(held(gpu=device_info.detect().is_gpu))


def outlive_reader(**_: Any) -> None:
    """Before signals are handled: whoever reads what this process says may have died, which is why it is asked to stop.

    Celery's handlers write to the descriptor of this stream before they do what they are for; a broken pipe ends them.
    """
    sys.__stdout__ = open(os.devnull, "w", encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115 - for good


def say_stop(how: str, **_: Any) -> None:
    """In a signal's handler, where nothing may be locked: what Celery would say there."""
    with suppress(OSError):
        os.write(1, f"worker: {how} shutdown (MainProcess)\n".encode())


def own_queues(name: str) -> tuple[str, str]:
    """Beside the common one: for jobs that ask for its GPU, and for those that another worker has failed."""
    return line_of_gpu(device_info.detect().model), line_of_worker(name)


def add_own_queues(sender: str, instance: Any, **_: Any) -> None:
    """Besides the queues of its command line, a worker takes from these."""
    for queue in own_queues(sender):
        instance.app.amqp.queues.select_add(queue)
    log_config.process_fields["worker"] = sender


def start_attendants(sender: Any, **_: Any) -> None:
    """The worker's consumer is connected and its pool is up; its log goes where it should from about now on."""
    for name, layer in _layers.items():
        log.log(logging.INFO if layer.active else logging.WARNING, "sandbox: %s", layer.line(name))
    try:
        log_broker_warnings(broker_warnings(connect()))
    except RedisError as error:
        log.warning("the settings of Redis could not be looked at: %s", error)
    _attendants.append(Attendants(sender))


def stop_attendants(**_: Any) -> None:
    """The worker has finished what it ran and goes."""
    while _attendants:
        _attendants.pop().stop()


def set_up_child(**_: Any) -> None:
    """A pool child begins. Nothing of CUDA here: a child that takes long to start is killed and started again."""
    # A group of its own: what it starts is killed with it, and a terminal's Ctrl-C reaches the main process alone,
    # which lets the job finish.
    os.setpgid(0, 0)
    die_with_parent(os.getppid())
    board.write(None)
    if device_info.detect().is_gpu:
        # Seconds that its first job need not wait for. What starts processes is left to that job: they would end with
        # the thread that has started them.
        Thread(target=_load_pipeline, name="pipeline's imports", daemon=True).start()


def _load_pipeline() -> None:
    try:
        import_module("tasks.evaluation.pipeline")
    except Exception:  # The first job meets it again.
        log.exception("the pipeline cannot be loaded ahead of the first job")


def close_workbench(**_: Any) -> None:
    """A pool child ends."""
    if "tasks.runtime.worker_context" in sys.modules:
        from tasks.runtime.worker_context import worker_context

        if worker_context.cache_info().currsize:
            worker_context().close()


def note_lost_child(exception: BaseException, task_id: str, **_: Any) -> None:
    """In the main process: the pool child with that message died or was killed at the hard limit, no kernel's fault."""
    if not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    records = JobRecords(connect(), settings().job_ttl)
    try:
        running = records.lines.running_under(task_id)
        if running is not None:
            job_id, attempt = running
            with log_config.about(job_id=job_id, attempt=attempt):
                log.error("job %s: attempt %d: its worker process died: %s", job_id, attempt, exception)
                try_again(records, job_id, attempt, str(exception))
    except RedisError as error:
        log.warning("message %s: its worker process died; the reconciler will queue its job again: %s", task_id, error)


after_setup_logger.connect(write_json)
after_setup_task_logger.connect(write_json)
worker_init.connect(outlive_reader)
worker_init.connect(look_for_telemetry)
worker_init.connect(pin_device)
worker_init.connect(look_at_sandbox)
worker_init.connect(claim_name)
celeryd_after_setup.connect(add_own_queues)
worker_ready.connect(start_attendants)
worker_shutting_down.connect(say_stop)
worker_shutdown.connect(stop_attendants)
worker_process_init.connect(set_up_child)
worker_process_shutdown.connect(close_workbench)
task_failure.connect(note_lost_child)
