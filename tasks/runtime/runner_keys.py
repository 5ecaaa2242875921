"""Says which jobs may have a runner of an earlier job: a reference's, or that of a candidate without host code."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from domain.kernel import KernelType
from domain.request import Request
from domain.result import REFERENCE
from tasks.runtime.stream_isolation import Queues


def reference_key(request: Request, queues: Queues) -> str | None:
    """Equal for jobs that may share a reference's runner; None for a job that needs a new one.

    Only modules of plain torch share runners. With gradients, the build in the runner's folder has the backward too.
    """
    reference = request.kernels.get(REFERENCE)
    if reference is None or reference.kernel_type is not KernelType.TORCH or not _may_share(request, queues):
        return None
    return _digest([request.owner, reference.to_wire(), request.draw_on, request.gradients])


def candidate_key(request: Request, queues: Queues) -> str | None:
    """Equal for jobs whose candidates may share a runner; None for a job whose candidate needs a new one.

    A replay has the inputs of an earlier job, which the runner may have seen.
    """
    if request.kernel.has_host_code or request.replay_seed is not None or not _may_share(request, queues):
        return None
    return _digest([request.owner, request.kernel.kernel_type])


def _may_share(request: Request, queues: Queues) -> bool:
    """Whether the job may use a process that other jobs use.

    Profilers may crash a process. A time over several processes needs fresh ones. A restarted job found something wrong
    with its contexts.
    """
    inspects = request.profile or request.artifacts or request.sanitize or request.device_metrics is not None
    restarted = queues.multi_queue_roles or queues.one_call or queues.final
    return not inspects and not restarted and request.processes == 1


def _digest(shared: list[Any]) -> str:
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()
