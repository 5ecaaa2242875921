"""What a runner tells is bounded, and never more than a word."""

from __future__ import annotations

import pytest

from domain.result import Status
from tasks.runtime.worker_context import WorkerContext
from tests.tasks.judging import SOFTMAX, judged, kernel


@pytest.mark.parametrize("lie", ["[1, 'a']", "[None]", "{'a': 1}", "[[1.5], []]", "[True]"])
def test_answers_that_are_no_tensors_are_the_kernels_fault(worker: WorkerContext, lie: str) -> None:
    forging = (
        "import sandbox.runner.runner\nfrom domain import value\n"
        f"sandbox.runner.runner.portable = lambda *_: ({lie}, [])\n"
    )
    source = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n"
    encoded = forging.replace(lie, f"value.encode({lie})")
    report = judged(worker, kernel(encoded + source), kernel(SOFTMAX))
    assert report.outcome.status is Status.CRASHED, report.outcome.message


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ("{'built': m | {'log': 'é' * (40 << 20)}}", Status.PASSED),
        ("{'built': m | {'deferred': 'é' * (40 << 20)}}", Status.PASSED),
        (
            "{'built': m | {'facts': {str(n): [{str(k): 'é' * 2048 for k in range(64)}] * 3 for n in range(64)}}}",
            Status.PASSED,
        ),
        ("{'loaded': {'op': 'fault'}}", Status.RUNTIME_ERROR),
    ],
)
def test_nothing_that_is_told_is_too_long_or_too_little_for_the_referee(
    worker: WorkerContext, change: str, status: Status
) -> None:
    """Characters that are longer in the referee's own JSON than in a runner's."""
    forging = f"""import json, sandbox.protocol.channel
def forged(self, message, descriptors=()):
    message = (lambda m: {change}.get(m["op"], m))(message)
    payload = json.dumps(message, ensure_ascii=False).encode()
    self.sock.sendall(sandbox.protocol.channel.HEADER.pack(len(payload)) + payload)
sandbox.protocol.channel.Channel.send = forged
"""
    source = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n"
    report = judged(worker, kernel(forging + source), kernel(SOFTMAX))
    assert report.outcome.status is status, report.outcome.message


def test_an_answer_of_more_elements_than_memory_is_refused_before_it_is_looked_at(worker: WorkerContext) -> None:
    forging = (
        "import sandbox.runner.runner\nfrom domain import value\n"
        "lie = value.encode([value.TensorRef('float32', (1 << 20, 1 << 20), (0, 0), 0)])\n"
        "sandbox.runner.runner.portable = lambda *_: (lie, [torch.zeros(1)])\n"
        "sandbox.runner.runner.view = lambda *_: torch.zeros(1)\n"
    )
    source = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n"
    report = judged(worker, kernel(forging + source), kernel(SOFTMAX))
    assert report.outcome.status is Status.OUT_OF_MEMORY, report.outcome.message


def test_a_kernel_cannot_have_windows_of_one_call_by_calling_itself_slow(worker: WorkerContext) -> None:
    lie = "import sandbox.runner.runner\nsandbox.runner.runner.milliseconds = lambda *_: 1e12\n"
    source = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n"
    report = judged(worker, kernel(lie + source), kernel(SOFTMAX))
    assert report.outcome.status is Status.PASSED, report.outcome.message
    assert report.outcome.timing is not None and report.outcome.timing.calls_per_window > 10
