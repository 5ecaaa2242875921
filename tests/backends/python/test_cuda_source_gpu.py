"""Kernel type `cuda` with a host function, on a GPU: right numbers, the stream handed in, errors of its launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status
from tests.backends.contracts import contract, scalar, tensor, values
from tests.backends.cuda.test_backend_gpu import here
from tests.backends.extensions.test_jit_build import in_builder, in_runner
from tests.backends.loading import kernel

pytestmark = pytest.mark.gpu

KERNEL = """
__global__ void scale(const float* x, float* y, float s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * s;
}
"""
IO = contract(tensor("x", 1000), tensor("y", 1000, role="output"), scalar("s", 2.5), scalar("n", 1000))
SOLVE = 'extern "C" void solve(const float* x, float* y, float s, int n)'
ON_A_STREAM = "void solve(const float* x, float* y, cudaStream_t stream, float s, int n)"
LAUNCH = "scale<<<(n + 255) / 256, 256>>>(x, y, s, n);"


def ready(source: str, folder: Path, io: dict[str, Any] = IO) -> tuple[Any, Kernel]:
    given = kernel(source, "cuda", io, entry_point="solve")
    executable = in_runner(given, folder, in_builder(given, folder, here()), here())
    assert not executable.compiled
    return executable, given


@pytest.mark.parametrize(
    "function",
    [
        f"{SOLVE} {{ {LAUNCH} }}",
        f"{SOLVE} {{ {LAUNCH} cudaDeviceSynchronize(); }}",
        f"{ON_A_STREAM} {{ scale<<<(n + 255) / 256, 256, 0, stream>>>(x, y, s, n); }}",
        f"""#include <thrust/device_ptr.h>
        #include <thrust/transform.h>
        {SOLVE} {{
            thrust::device_ptr<const float> in(x);
            thrust::transform(in, in + n, thrust::device_ptr<float>(y), [=] __device__ (float v) {{ return v * s; }});
        }}""",
    ],
)
def test_right_numbers(tmp_path: Path, function: str) -> None:
    executable, given = ready(KERNEL + function, tmp_path)
    args = values(given.io, "cuda")
    assert executable.call(args) is None
    torch.cuda.synchronize()
    torch.testing.assert_close(args[1], args[0] * 2.5)
    executable.call([*args[:2], -1.0, 500])
    torch.testing.assert_close(args[1], torch.cat([-args[0][:500], args[0][500:] * 2.5]))


def test_the_current_stream_is_handed_in(tmp_path: Path) -> None:
    source = f"{KERNEL}{ON_A_STREAM} {{ scale<<<(n + 255) / 256, 256, 0, stream>>>(x, y, s, n); }}"
    executable, given = ready(source, tmp_path)
    args = values(given.io, "cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # 10 ms: a launch elsewhere would read the old content.
        args[0].fill_(4.0)
        executable.call(args)
    stream.synchronize()
    assert args[1].tolist() == [10.0] * 1000


def test_a_launch_that_fails_is_told_and_leaves_no_error(tmp_path: Path) -> None:
    executable, given = ready(f"{KERNEL}{SOLVE} {{ scale<<<n, 256>>>(x, y, s, n); }}", tmp_path)
    args = values(given.io, "cuda")
    with pytest.raises(KernelFault, match="left cudaErrorInvalid") as caught:
        executable.call([*args[:3], 0])
    assert caught.value.status is Status.RUNTIME_ERROR and caught.value.compiled
    executable.call(args)
    torch.testing.assert_close(args[1], args[0] * 2.5)


def test_memory_that_the_device_lacks(tmp_path: Path) -> None:
    executable, given = ready(f"{KERNEL}{SOLVE} {{ void* p; cudaMalloc(&p, 1ull << 45); }}", tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.call(values(given.io, "cuda"))
    assert caught.value.status is Status.OUT_OF_MEMORY
