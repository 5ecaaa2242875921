"""Measures a card's peak rates with a few short kernels: copies, fills, matrix products.

The best of several tries counts: a peak that is too low would make an honest time look impossible.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from profiling.gpu.measured_peaks import Ceilings

TRIES = 5
MEMORY_L2S = 8
"""Size of the buffers as a multiple of the L2, at which no byte is still in the cache when it is read."""

# Copies within the L2 are measured as the difference between bursts of two sizes, which cancels the cost of launches.
BURST = 50
SMALL_SHARE, LARGE_SHARE = 1 / 32, 1 / 8

PRODUCTS = {
    "float8_e4m3fn": (torch.float8_e4m3fn, 8192),
    "bfloat16": (torch.bfloat16, 8192),
    "float16": (torch.float16, 8192),
    "tf32": (torch.float32, 8192),
    "float32": (torch.float32, 4096),
    "float64": (torch.float64, 4096),
}
"""Element type and side of the square matrices; sides at which an H200 reaches its rate within a few ms."""

FLOAT8_SINCE = (8, 9)
"""Minimum compute capability for products of 8-bit floats."""


def measure(device: str) -> Ceilings:
    """Measures the peaks of a CUDA device that no one else uses now. It needs 3 GB of its memory and frees them."""
    l2 = int(torch.cuda.get_device_properties(device).L2_cache_size)
    try:
        # Products first: they bring an idle card to its full clocks.
        flops = {name: rate for name in PRODUCTS if (rate := _product_rate(name, device)) is not None}
        memory, cache = _memory_rate(l2, device), _cache_rate(l2, device)
        return Ceilings(memory, max(memory, cache) if memory and cache else None, l2, flops)
    finally:
        torch.cuda.empty_cache()


def _product_rate(name: str, device: str) -> float | None:
    dtype, side = PRODUCTS[name]
    if dtype.itemsize == 1 and torch.cuda.get_device_capability(device) < FLOAT8_SINCE:
        return None
    try:
        # Random, not zeros: a card multiplies zeros faster than data.
        left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        with _float32_products("tf32" if name == "tf32" else "ieee"):
            return 2.0 * side**3 / _best_s(_product(left, right))
    except torch.OutOfMemoryError:
        return None


def _product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], torch.Tensor]:
    if left.dtype.itemsize > 1:
        into = torch.empty_like(left)
        return lambda: torch.matmul(left, right, out=into)
    # torch has no 8-bit matmul, only a product with scales, whose second matrix is transposed.
    one, columns = torch.ones((), device=left.device), right.t()
    return lambda: torch._scaled_mm(left, columns, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _memory_rate(l2: int, device: str) -> float | None:
    count = max(l2, 1 << 24) * MEMORY_L2S // 4
    try:
        source, into = (torch.ones(count, device=device) for _ in range(2))
    except torch.OutOfMemoryError:
        return None
    moved = 4.0 * count
    return max(
        2 * moved / _best_s(lambda: torch.neg(source, out=into)),
        moved / _best_s(lambda: into.fill_(1.0)),
    )


def _cache_rate(l2: int, device: str) -> float | None:
    if not l2:
        return None
    rates = []
    for buffers, kernel in ((2, _negate_kernel), (1, _fill_kernel)):
        sizes = [int(l2 * share) // 4 for share in (SMALL_SHARE, LARGE_SHARE)]
        small, large = (_burst_s(kernel, size, device) for size in sizes)
        if large > small:
            rates.append(buffers * 4.0 * (sizes[1] - sizes[0]) * BURST / (large - small))
    return max(rates, default=None)


def _negate_kernel(source: torch.Tensor, into: torch.Tensor) -> None:
    torch.neg(source, out=into)


def _fill_kernel(source: torch.Tensor, into: torch.Tensor) -> None:
    into.fill_(1.0)


def _burst_s(kernel: Callable[[torch.Tensor, torch.Tensor], None], count: int, device: str) -> float:
    """A burst as one graph: queued one by one, such short kernels would wait for the host."""
    source, into = (torch.ones(count, device=device) for _ in range(2))
    kernel(source, into)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(BURST):
            kernel(source, into)
    # Use the median: the minimum of both sizes would make their difference a matter of luck.
    return statistics.median(_seconds(graph.replay))


def _best_s(work: Callable[[], object]) -> float:
    return min(_seconds(work))


def _seconds(work: Callable[[], object]) -> list[float]:
    work()
    seconds = []
    for _ in range(TRIES):
        start, end = _event(), _event()
        start.record()
        work()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return seconds


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@contextmanager
def _float32_products(mode: str) -> Iterator[None]:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = mode
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
