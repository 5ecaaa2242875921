"""A real runner, forked from a real zygote: everything that it may do to itself becomes a typed fault."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from backends.base import Artifact, Target
from domain.fault import InfrastructureFault, JobCancelled, KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.supervisor.runner_process import RunnerProcess
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote

NOTHING = Artifact()
BLAMES = "from domain import fault, result;"


def function(body: str) -> Kernel:
    return Kernel(
        f"import torch, os, sys, ctypes, signal, time\ndef f(*args):\n    {body}\n",
        KernelType.TORCH,
        None,
        {"function_name": "f"},
    )


def load(session, kernel, folder):
    return session.load(kernel, NOTHING, None, 0)


def test_a_value_goes_there_and_its_answer_comes_back(session, folder):
    runner = session()
    assert load(runner, function("return {'sum': args[0] + args[1], 'n': args[2]}"), folder).entry == "function f"
    one, two = torch.randn(3, 4), torch.randn(4, 3).t()
    probe = runner.probe([one, two, 7], 2)
    assert probe.returned
    assert torch.equal(probe.outputs[0], one + two)
    assert probe.outputs[1].item() == 7


def test_the_sources_own_inputs_come_out_as_private_copies(session, folder):
    runner = session()
    makes = "def get_inputs(): return [torch.randn(2, 3).t(), 5, 'text', (None, [torch.ones(1)])]"
    kernel = Kernel(f"{makes}\ndef kernel_fn(a, b, c, d): return a", KernelType.TORCH)
    load(runner, kernel, folder)
    made, _ = runner.inputs([1, 1, 2], infer=False)
    assert made is not None
    first, again, other = made
    assert first[0].shape == (3, 2) and first[0].stride() == (1, 3)
    assert first[1:3] == [5, "text"] and isinstance(first[3], tuple)
    assert torch.equal(first[0], again[0]) and not torch.equal(first[0], other[0])


EVERY_FORM = """
def get_inputs():
    number = int(torch.randint(0, 100, ()))
    wide = torch.full((2, 6), float(number))
    return [
        wide[:, ::2], torch.tensor(number), torch.empty(0, 3), (torch.tensor([True, False]), {"t": wide.t()}),
        torch.full((3,), number, dtype=torch.uint16).expand(2, 3)[:, ::2], torch.full((), number, dtype=torch.uint64),
        torch.full((3,), number % 8).to(torch.float8_e4m3fn), torch.full((2,), number * 1j),
        wide[:1].expand(4, 6), 5, SAID
    ]
def kernel_fn(*args): return args[0]
"""


@pytest.mark.parametrize("said", ["'alike'", "number", "[torch.ones(number % 3)]"])
def test_several_sets_come_out_whether_or_not_they_are_of_one_form(session, folder, said):
    runner = session()
    load(runner, Kernel(EVERY_FORM.replace("SAID", said), KernelType.TORCH), folder)
    made, _ = runner.inputs(list(range(40)), infer=False)
    assert made is not None and len(made) == 40
    numbers = [int(one[1]) for one in made]
    assert len(set(numbers)) > 10
    for number, one in zip(numbers, made, strict=True):
        columns, _, empty, (flags, more), shorts, longs, small, complexes, expanded, five, told = one
        assert columns.shape == (2, 3) and (columns == number).all() and empty.shape == (0, 3) and five == 5
        assert flags.tolist() == [True, False] and more["t"].shape == (6, 2) and (more["t"] == number).all()
        assert shorts.dtype is torch.uint16 and shorts.tolist() == [[number] * 2] * 2 and longs.item() == number
        assert small.float().tolist() == [number % 8] * 3 and complexes.tolist() == [number * 1j] * 2
        assert expanded.shape == (4, 6) and (expanded == number).all()
        if isinstance(told, list):
            assert len(told[0]) == number % 3
        else:
            assert told == {"number": number, "'alike'": "alike"}[said]
    first, second, *_ = (one[0] for one in made)
    first.fill_(1000)
    assert (second == numbers[1]).all(), "no set shares memory with another"


@pytest.mark.parametrize(("even", "odd"), [("0.0", "-0.0"), ("1", "True"), ("2", "2.0")])
def test_sets_of_equal_numbers_that_are_different_arguments_stay_so(session, folder, even, odd):
    runner = session()
    source = f"""
import torch
from itertools import count
drawn = count()
def get_inputs(): return [torch.rand(2), {odd} if next(drawn) % 2 else {even}]
def kernel_fn(x, y): return x
"""
    load(runner, Kernel(source, KernelType.TORCH), folder)
    made, _ = runner.inputs([1, 2, 3], infer=False)
    assert made is not None
    assert [repr(one[1]) for one in made] == [even, odd, even]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("[dict(TENSOR, shape=[1 << 40, 1 << 40, 0])]", Status.UNSUPPORTED),
        ("[dict(TENSOR, shape=[1, 1, 0])] * 2000", Status.UNSUPPORTED),
        ("[dict(TENSOR, shape=[1 << 30, 1, 1])]", Status.OUT_OF_MEMORY),
        ("5", None),
        ("{'$': 'dict', 'items': [['a', dict(TENSOR, shape=[1, 1, 1])]]}", None),
    ],
)
def test_sets_that_a_runner_makes_up_are_its_fault_or_none(session, folder, said, status):
    runner = session()
    source = f"""
from sandbox.runner.runner import Runner
TENSOR = {{"$": "tensor", "dtype": "float32", "strides": [0, 0, 0], "offset": 0}}
Runner.inputs = lambda runner, message: {{"op": "value", "stacked": True, "value": {said}}}
Runner.export = lambda runner, message: {{"op": "ok"}}
def kernel_fn(x): return x
"""
    load(runner, Kernel(source, KernelType.TORCH), folder)
    if status is None:
        assert runner.inputs(list(range(64)), infer=False) == (None, None)
        return
    with pytest.raises(KernelFault) as caught:
        runner.inputs(list(range(64)), infer=False)
    assert caught.value.status is status


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("ctypes.string_at(0)", Status.CRASHED, "SIGSEGV"),
        ("os.abort()", Status.CRASHED, "SIGABRT"),
        ("os._exit(0)", Status.CRASHED, "code 0"),
        ("os.kill(os.getpid(), signal.SIGRTMIN)", Status.CRASHED, "signal"),
        ("os.closerange(3, 100) or time.sleep(60)", Status.CRASHED, "closed its connection"),
        ("os.write(3, b'\\xff' * 100) and time.sleep(60)", Status.CRASHED, "malformed message"),
        ("raise ValueError('of my own')", Status.RUNTIME_ERROR, "of my own"),
        ("sys.exit(3)", Status.RUNTIME_ERROR, "SystemExit"),
        ("[].append([torch.ones(1 << 22).clone() for _ in range(1000)])", Status.OUT_OF_MEMORY, "memory"),
        ("torch.empty(1 << 60)", Status.OUT_OF_MEMORY, "memory"),
        ("return torch.eye(3).to_sparse()", Status.UNSUPPORTED, "strided"),
        ("return torch.nested.nested_tensor([torch.ones(2)])", Status.UNSUPPORTED, "nested tensors do not cross"),
        (f"{BLAMES} raise fault.KernelFault(result.Status.REFERENCE_FAILED, 'not I')", Status.RUNTIME_ERROR, "not I"),
        (f"{BLAMES} raise fault.KernelFault(result.Status.PASSED, 'very good')", Status.RUNTIME_ERROR, "very good"),
    ],
)
def test_every_way_to_fail_has_its_status(session, folder, body, status, says):
    runner = session()
    load(runner, function(body), folder)
    with pytest.raises(KernelFault) as caught:
        runner.probe([torch.ones(2)], 1)
    assert caught.value.status is status, caught.value.message
    assert says in caught.value.message


def test_an_endless_loop_ends_at_its_deadline(session, folder):
    runner = session()
    load(runner, function("while True: pass"), folder)
    runner.set_deadline(time.monotonic() + 1.0)
    with pytest.raises(KernelFault) as caught:
        runner.probe([torch.ones(2)], 1)
    assert caught.value.status is Status.TIMEOUT and "timed out" in caught.value.message


def test_a_runner_whose_deadline_has_passed_can_be_frozen(session, folder):
    """It passes between two requests, where a check had set it: that is no fault of the kernel."""
    one = session()
    load(one, function("return args[0] + 1"), folder)
    one.set_deadline(time.monotonic() - 1)
    one.runner.freeze()
    assert _state(one.runner.pid) == "T"
    one.runner.thaw()
    one.set_deadline(time.monotonic() + 30)
    assert len(one.probe([torch.ones(2)], 1).outputs) == 1


def test_a_frozen_runner_that_is_cancelled_is_killed(session, folder):
    cancelled = threading.Event()
    one = session(cancelled=cancelled.is_set)
    load(one, function("return args[0] + 1"), folder)
    cancelled.set()
    with pytest.raises(JobCancelled):
        one.runner.freeze()
    assert not one.runner.alive


def test_a_cancelled_runner_is_killed(session, folder):
    cancelled = threading.Event()
    runner = session(cancelled=cancelled.is_set)
    load(runner, function("while True: pass"), folder)
    timer = threading.Timer(0.2, cancelled.set)
    timer.start()
    with pytest.raises(JobCancelled):
        runner.probe([torch.ones(2)], 1)
    timer.join()


def test_a_flood_of_output_is_kept_to_its_ends(session, folder):
    runner = session()
    load(runner, function("sys.stdout.write('BEGIN' + 'x' * 100_000_000 + 'END'); return args[0]"), folder)
    runner.probe([torch.ones(2)], 1)
    runner.runner.kill()
    text = runner.runner.output.text()
    assert text.startswith("BEGIN") and text.rstrip().endswith("END")
    assert len(text) < 100_000 and "bytes left out" in text


def test_what_a_runner_started_dies_with_it_even_in_a_session_of_its_own(session, folder):
    runner = session()
    body = (
        "\n    pid = os.fork()"
        "\n    if pid == 0:"
        "\n        os.setsid()"
        "\n        if os.fork() == 0:"
        "\n            open('orphan', 'w').write(str(os.getpid()))"
        "\n        time.sleep(600)"
        "\n    while not os.path.exists('orphan') or not open('orphan').read(): pass"
        "\n    return args[0]"
    )
    load(runner, function(body), folder)
    runner.probe([torch.ones(2)], 1)
    orphan = int((folder / "orphan").read_text())
    assert os.path.exists(f"/proc/{orphan}")
    runner.runner.kill()
    assert not _running(orphan)


def test_the_runner_sees_no_variable_of_the_worker(zygote, session, folder, monkeypatch):
    runner = session()
    load(runner, function("print(sorted(os.environ)); return args[0]"), folder)
    runner.probe([torch.ones(2)], 1)
    runner.runner.kill()
    names = runner.runner.output.text()
    assert "PATH" in names
    for secret in ("CELERY_BROKER_URL", "STATE_DIR", "PYTEST_CURRENT_TEST"):
        assert secret in os.environ or secret != "PYTEST_CURRENT_TEST"
        assert secret not in names


def test_an_arena_over_the_limit_is_refused(session, folder):
    runner = session()
    load(runner, function("return args[0]"), folder)
    with pytest.raises(KernelFault) as caught:
        runner.probe([torch.empty(300 << 20, dtype=torch.uint8)], 1)
    assert caught.value.status is Status.OUT_OF_MEMORY


@pytest.mark.parametrize("size", [0, 1 << 24])
def test_what_a_runner_is_lent_keeps_its_size(session, folder, size):
    runner = session()
    body = (
        "\n    lent = [n for n in os.listdir('/proc/self/fd') if 'arena' in os.path.realpath(f'/proc/self/fd/{n}')]"
        f"\n    os.ftruncate(int(lent[0]), {size})"
    )
    load(runner, function(body), folder)
    with pytest.raises(KernelFault, match="PermissionError"):
        runner.probe([torch.ones(2)], 1)
    assert runner.arena is not None and os.fstat(runner.arena.descriptor).st_size == runner.arena.bytes.numel()


def test_a_dead_zygote_is_the_services_fault_not_the_kernels(tmp_path: Path):
    zygote = Zygote(tmp_path, arch=None, memory_limit=1 << 30)
    folder = zygote.private_folder(tmp_path / "job")

    def fork() -> RunnerProcess:
        return zygote.runner(folder, gpu=False, deadline=time.monotonic() + 60, cancelled=lambda: False)

    runner = Session(fork(), Target("cpu", None), 1 << 20)
    load(runner, function("time.sleep(60)"), folder)
    pid = runner.runner.pid
    threading.Timer(0.2, os.kill, (zygote.pid, signal.SIGKILL)).start()
    with pytest.raises(InfrastructureFault, match="zygote"):
        runner.probe([torch.ones(2)], 1)
    assert not zygote.alive
    with pytest.raises(InfrastructureFault):
        fork()
    runner.close()
    zygote.close()
    deadline = time.monotonic() + 30
    while _running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _running(pid)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _running(pid: int) -> bool:
    try:
        return _state(pid) != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("body", "reuses"),
    [
        ("return KEPT.copy_(args[0])", True),
        ("KEPT.append(KEPT.pop(0)); return KEPT[0].copy_(args[0])", True),
        ("return args[0] * 2", False),
        ("return args[0], args[0].view(-1)", False),
        ("return 2.5", False),
        ("return args[0].numpy()[::-1]", False),
    ],
)
def test_a_kernel_that_answers_in_the_same_memory_is_known(session, folder, body, reuses):
    runner = session()
    kept = "[torch.empty(2) for _ in range(3)]" if "pop" in body else "torch.empty(2)"
    source = f"import torch\nKEPT = {kept}\ndef kernel_fn(*args):\n    {body}\n"
    load(runner, Kernel(source, KernelType.TORCH), folder)
    assert runner.probe([torch.ones(2)], 4).reuses_memory is reuses


def test_an_argument_is_alone_in_its_storage(session, folder):
    runner = session()
    load(
        runner,
        function("return args[1].storage_offset(), args[1].untyped_storage().nbytes(), args[1]._base is None"),
        folder,
    )
    one = torch.arange(6.0).view(2, 3)
    assert [output.item() for output in runner.probe([one, one.t()], 1).outputs] == [0, 24, True]


def test_an_answer_of_any_common_container_is_flattened(session, folder):
    runner = session()
    source = """
import dataclasses, types
import numpy, torch

@dataclasses.dataclass
class Answer:
    values: torch.Tensor
    found: dict

def kernel_fn(x):
    found = {"count": numpy.float32(3), "rows": (numpy.arange(2), None, "a word")}
    return types.MappingProxyType({"answer": Answer(x.expand(2, 2), found), "last": 2 + 1j})
"""
    load(runner, Kernel(source, KernelType.TORCH), folder)
    values, count, rows, last = runner.probe([torch.ones(2)], 1).outputs
    assert torch.equal(values, torch.ones(2, 2))
    assert (count.item(), count.dtype, rows.tolist(), last.item()) == (3, torch.float32, [0, 1], 2 + 1j)


def test_an_answer_that_cannot_be_looked_into_is_refused_by_name(session, folder):
    runner = session()
    load(runner, function("return args[0], object()"), folder)
    with pytest.raises(KernelFault, match="of type object") as caught:
        runner.probe([torch.ones(2)], 1)
    assert caught.value.status is Status.UNSUPPORTED
