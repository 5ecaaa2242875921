"""Machine code as read here, against the report of the assembler that made it; occupancy, against CUDA's own."""

from __future__ import annotations

import random

import pytest

from backends.binary import ptxas_report
from backends.binary.cubin import MAX_KERNELS, kernels
from backends.binary.occupancy import occupancy
from backends.cuda import nvrtc

SOURCE = """
extern "C" __global__ void staged(float* y, int n) {
    float a[64];
    __shared__ float s[256];
    for (int i = 0; i < 64; i++) a[i] = y[i * n + threadIdx.x];
    s[threadIdx.x] = a[n & 63];
    __syncthreads();
    for (int i = 0; i < 64; i++) y[i] += a[i] * s[(threadIdx.x + i) & 255];
}
template <typename T> __global__ void __launch_bounds__(128, 2) small(T* y) { y[threadIdx.x] = T(1); }
template __global__ void small<float>(float*);
extern "C" __global__ void __launch_bounds__(1024) spilling(float* y, const float* x) {
    float a[120], s = 0;
    #pragma unroll
    for (int i = 0; i < 120; i++) a[i] = x[i * 1024 + threadIdx.x];
    #pragma unroll
    for (int i = 0; i < 120; i++) y[i] = s = s * 1.1f + a[i];
    #pragma unroll
    for (int i = 119; i >= 0; i--) y[i * 1024 + threadIdx.x] = a[i] * s;
}
"""


def compiled(arch: str) -> nvrtc.Compilation:
    return nvrtc.compile_source(SOURCE, [f"-arch={arch}", ptxas_report.VERBOSE], {})


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_it_says_what_the_assembler_said(arch: str) -> None:
    compilation = compiled(arch)
    reported = {one["name"]: one for one in ptxas_report.resources(compilation.log)}
    read = kernels(compilation.cubin)
    assert [one.name for one in read] == sorted(reported) and len(read) == 3
    for one in read:
        said = reported[one.name]
        assert (one.registers, one.local_bytes) == (said["registers"], said["local_bytes"])
        assert one.static_shared_bytes == said["static_shared_bytes"]
    assert [one.max_threads for one in read] == [128, 1024, None]
    assert [one.parameter_bytes for one in read] == [{0: 8}, {0: 8, 1: 8}, {0: 8, 1: 4}]
    spilling, staged = reported["spilling"], reported["staged"]
    assert spilling["spill_store_bytes"] > 0 and spilling["spill_load_bytes"] > 0 and spilling["registers"] <= 64
    assert staged["static_shared_bytes"] == 1024 and staged["local_bytes"] == 256
    assert ptxas_report.strip_report(compilation.log).strip() == ""


@pytest.mark.parametrize("size", [1, 4000, 4096, 20_000])
def test_it_tells_the_bytes_that_a_launch_reads(size: int) -> None:
    source = f"struct S {{ char bytes[{size}]; }}; __global__ void k(bool b, S s, double d, short last) {{}}"
    (kernel,) = kernels(nvrtc.compile_source(source, ["-arch=sm_90a"], {}).cubin)
    assert kernel.parameter_bytes == {0: 1, 1: size, 2: 8, 3: 2}


def test_bytes_that_are_no_machine_code_are_refused() -> None:
    cubin = compiled("sm_90a").cubin
    for wrong in (b"", b"\x7fELF", b"MZ" * 100, cubin[:100], cubin[: len(cubin) // 2]):
        with pytest.raises(ValueError, match="not a cubin"):
            kernels(wrong)


def test_forged_machine_code_is_read_or_refused_and_nothing_else() -> None:
    cubin, chance = compiled("sm_90a").cubin, random.Random(1)
    for _ in range(300):
        forged = bytearray(cubin)
        for _ in range(8):
            forged[chance.randrange(len(forged))] = chance.randrange(256)
        try:
            assert len(kernels(bytes(forged))) <= MAX_KERNELS
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "limited_by"),
    [
        # By CUDA's own occupancy calculator.
        ("sm_90a", 256, 32, 0, 8, "warps"),
        ("sm_90a", 256, 33, 0, 6, "registers"),
        ("sm_90", 256, 72, 0, 3, "registers"),
        ("sm_90", 1024, 64, 0, 1, "registers"),
        ("sm_90", 32, 16, 0, 32, "blocks"),
        ("sm_90", 128, 32, 48 * 1024, 4, "shared_memory"),
        ("sm_80", 128, 32, 48 * 1024, 3, "shared_memory"),
        ("sm_80", 256, 255, 0, 1, "registers"),
        ("sm_89", 256, 32, 0, 6, "warps"),
        ("sm_90", 100, 40, 0, 12, "registers"),
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, blocks: int, limited_by: str) -> None:
    found = occupancy(arch, threads, registers, shared)
    assert found is not None
    assert (found["blocks_per_multiprocessor"], found["limited_by"]) == (blocks, limited_by)
    assert found["warps_per_multiprocessor"] == blocks * -(-threads // 32)


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared"),
    [("sm_90", 1025, 32, 0), ("sm_90", 0, 32, 0), ("sm_90", 1024, 128, 0), ("sm_90", 32, 32, 1 << 20), ("?", 32, 1, 0)],
)
def test_no_occupancy_where_no_block_fits(arch: str, threads: int, registers: int, shared: int) -> None:
    assert occupancy(arch, threads, registers, shared) is None


def test_a_log_without_an_entry_has_no_kernels() -> None:
    assert ptxas_report.resources("") == ptxas_report.resources("a warning\n") == []
