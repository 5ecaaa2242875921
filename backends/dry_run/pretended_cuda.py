"""Lets torch.cuda describe a GPU that is not there, of the target's architecture.

Figures that an architecture implies are exact. A card's name, multiprocessors and memory are a guess, because a builder
does not know the card: `note_guess` is called when a source reads one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ContextDecorator, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton.testing

from backends.binary.occupancy import MULTIPROCESSORS, REGISTERS, RESERVED_SHARED, WARP
from backends.dry_run.fake_tensors import DEVICE

THREADS = 1024
"""Maximum number of threads of a block."""
DEFAULT_SHARED = 48 << 10
"""Bytes of shared memory that a block may have without asking for more."""
CALL_MS = 1.0
"""The time that everything takes, in ms."""
A_TIME = "a time on the card"


@dataclass(frozen=True)
class Card:
    """A usual card of an architecture: its name, multiprocessors, and MiB of memory."""

    name: str
    multiprocessors: int
    memory_mib: int


CARDS = {
    80: Card("NVIDIA A100-SXM4-80GB", 108, 81_152),
    86: Card("NVIDIA A10G", 80, 22_731),
    89: Card("NVIDIA L40S", 142, 45_589),
    90: Card("NVIDIA H100 80GB HBM3", 132, 81_079),
    100: Card("NVIDIA B200", 148, 182_642),
}
USUAL = CARDS[90]
GUESSED = ("name", "multi_processor_count", "total_memory", "L2_cache_size")


def capability_of(arch: str) -> int:
    """90 for "sm_90"."""
    return int(re.sub(r"\D", "", arch))


class Properties:
    """`torch.cuda.get_device_properties` of the pretended card."""

    def __init__(self, arch: str, note_guess: Callable[[str], None]) -> None:
        capability = capability_of(arch)
        card, limits = CARDS.get(capability, USUAL), MULTIPROCESSORS.get(capability, MULTIPROCESSORS[90])
        self.major, self.minor = divmod(capability, 10)
        self.warp_size = WARP
        self.max_threads_per_block = THREADS
        self.max_threads_per_multi_processor = limits.warps * WARP
        self.regs_per_multiprocessor = REGISTERS
        self.shared_memory_per_block = DEFAULT_SHARED
        self.shared_memory_per_multiprocessor = limits.shared_kib << 10
        self.shared_memory_per_block_optin = self.shared_memory_per_multiprocessor - RESERVED_SHARED
        self.is_integrated = self.is_multi_gpu_board = 0
        self._guessed = dict(
            zip(GUESSED, (card.name, card.multiprocessors, card.memory_mib << 20, 50 << 20), strict=True)
        )
        self._note_guess = note_guess

    def __getattr__(self, name: str) -> Any:
        if name not in GUESSED:
            raise AttributeError(name)
        self._note_guess(f"the card's {name}")
        return self._guessed[name]

    def unnoted(self) -> Properties:
        """The same for a library that reads guesses whatever the source is, and refuses none for them."""
        return Properties(f"sm_{self.major}{self.minor}", lambda reason: None)


class Stream:
    cuda_stream = stream_id = device_index = 0
    device = DEVICE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()

    def _nothing(self, *args: Any) -> None:
        pass

    synchronize = wait_event = wait_stream = _nothing


class Event:
    """An event that has always happened, `CALL_MS` after every other."""

    cuda_event = 0
    device = DEVICE
    note_guess: Callable[[str], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        self.note_guess(A_TIME)
        return CALL_MS

    def _nothing(self, *args: Any) -> None:
        pass

    record = wait = synchronize = _nothing


class Generator(torch.Generator):
    """A generator for the GPU, made on the host: tensors without content draw nothing from it."""

    def __new__(cls, device: Any = None) -> Generator:
        return super().__new__(cls)


class Graph:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def pool(self) -> tuple[int, int]:
        return 0, 0

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        pass

    capture_begin = capture_end = replay = reset = _nothing


def pretend_cuda(arch: str, note_guess: Callable[[str], None]) -> Properties:
    """Replaces functions of torch.cuda in this process for good; returns the properties that they tell."""
    properties, stream = Properties(arch, note_guess), Stream()

    def memory(*args: Any) -> tuple[int, int]:
        return properties.total_memory, properties.total_memory

    def timed(*args: Any, **kwargs: Any) -> Any:
        note_guess(A_TIME)
        return benchmark(*args, **kwargs)

    answers: dict[str, Any] = {
        "is_available": True,
        "is_bf16_supported": True,
        "is_tf32_supported": True,
        "is_current_stream_capturing": False,
        "device_count": 1,
        "current_device": DEVICE.index,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "get_arch_list": [arch],
        "current_stream": stream,
        "default_stream": stream,
        "graph_pool_handle": (0, 0),
        "get_rng_state_all": [],
        **dict.fromkeys(("set_rng_state", "set_rng_state_all"), None),
        **dict.fromkeys(("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"), 0),
        **dict.fromkeys(
            ("init", "_lazy_init", "synchronize", "empty_cache", "ipc_collect", "set_device", "set_stream"), None
        ),
        **dict.fromkeys(("reset_peak_memory_stats", "manual_seed", "manual_seed_all", "seed", "seed_all"), None),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _answering(answer))
    replacements: dict[str, Any] = {
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        **dict.fromkeys(("device", "device_of", "_DeviceGuard", "stream", "graph"), Entered),
        "mem_get_info": memory,
        "get_rng_state": lambda *args: torch.zeros(16, dtype=torch.uint8),
        "ExternalStream": Stream,
        "get_device_name": lambda *args: properties.name,
        "make_graphed_callables": lambda callables, *args, **kwargs: callables,
    }
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    for name in ("_lazy_init", "get_rng_state", "set_rng_state"):  # Other modules import these names from there.
        setattr(torch.cuda.random, name, getattr(torch.cuda, name))
    torch.accelerator.synchronize = _answering(None)
    torch.Generator = Generator  # type: ignore[misc]
    Event.note_guess = staticmethod(note_guess)
    torch.cuda.nvtx.range = lambda *args, **kwargs: nullcontext()  # type: ignore[assignment]
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = _answering(0)
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = timed
    return properties


def benchmark(kernel_call: Callable[[], Any], *args: Any, quantiles: Any = None, **kwargs: Any) -> Any:
    """Replaces the `do_bench` of Triton's autotuner: one call, and the same time for every configuration."""
    kernel_call()
    return CALL_MS if quantiles is None else [CALL_MS] * len(quantiles)


class Entered(ContextDecorator):
    """A device, stream or graph to be current, which changes nothing; a class, because torch asks for instances."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args

    def __enter__(self) -> Any:
        return self._args[0] if self._args else None

    def __exit__(self, *error: object) -> None:
        pass


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer
