"""Which launched kernels come from the source, by names that real profilers gave; and what is flagged about them."""

from __future__ import annotations

from typing import Any

import pytest

from domain.flags.codes import FlagCode
from domain.kernel import Kernel, KernelType
from profiling.launches.report import described, qualified_name
from sandbox.protocol.launch_trace import CPU_OPERATORS, CUPTI, LaunchedKernel, LaunchTrace

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
NVJET = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
GEMVX = (
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, "
    "__nv_bfloat16, float, false, true, true, false, 7, false, cublasGemvParamsEx<int, cublasGemvTensorStridedBatch"
)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("axpy", ["axpy"]),
        ("axpy(float const*, int)", ["axpy"]),
        ("void ns::(anonymous namespace)::deep::axpy<float, 2>(int)", ["ns", "deep", "axpy"]),
        (ELEMENTWISE, ["at", "native", "vectorized_elementwise_kernel"]),
        (GEMVX, ["internal", "gemvx", "kernel"]),
        ("void (anonymous namespace)::mine<float>(float*)", ["mine"]),
        ("_INTERNAL_4a1c_9_kernel_cu::axpy(float*)", ["axpy"]),
        ("", [""]),
        ("{lambda()#1}", ["{lambda()#1}"]),
    ],
)
def test_a_kernels_qualified_name(name: str, parts: list[str]) -> None:
    assert qualified_name(name) == parts


def kernel(source: str, kernel_type: KernelType = KernelType.TORCH) -> Kernel:
    return Kernel(source, kernel_type)


def trace(
    *launched: tuple[str, float], stray_us: float = 0.0, distinct: int | None = None, source: str = CUPTI
) -> LaunchTrace:
    kernels = tuple(LaunchedKernel(name, 2, time_us) for name, time_us in launched)
    total = sum(one.time_us for one in kernels)
    on_device = source == CUPTI
    return LaunchTrace(
        source,
        2,
        kernels,
        2 * len(kernels),
        total,
        len(kernels) if distinct is None else distinct,
        1 if on_device else None,
        stray_us if on_device else None,
    )


def origins(report: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["origin"] for row in report["kernels"]}


AXPY = 'import triton\n@triton.jit\ndef axpy(x): pass\nclass ModelNew:\n    """Uses matmul, reduce_kernel."""\n'


def test_kernels_are_reported_with_figures_per_call() -> None:
    report = described(trace(("axpy", 30.0), (ELEMENTWISE, 10.0)), kernel(AXPY, KernelType.TRITON))
    assert report == {
        "advisory": True,
        "source": "cupti",
        "calls": 2,
        "device_time_us": 20.0,
        "launches": 2.0,
        "streams": 1,
        "custom_share": 0.75,
        "kernels": [
            {"name": "axpy", "launches": 1.0, "share": 0.75, "origin": "custom"},
            {"name": ELEMENTWISE, "launches": 1.0, "share": 0.25, "origin": "other"},
        ],
        "kernels_omitted": 0,
        "flags": [],
    }


def test_the_origin_of_kernels_that_the_source_does_not_name() -> None:
    reduction = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)"
    names = [NVJET, GEMVX, reduction, "Memcpy DtoD (Device -> Device)", "Memset (Device)", "triton_red_fused_sum_0"]
    report = described(trace(*((name, 1.0) for name in names)), kernel(AXPY))
    assert list(origins(report).values()) == ["other", "other", "other", "memory", "memory", "other"]


def test_a_kernel_named_like_a_librarys_is_custom_where_the_source_names_it() -> None:
    source = 'code = "__global__ void winograd_tile(float* x) {}"'
    assert origins(described(trace(("winograd_tile(float*)", 1.0)), kernel(source))) == {
        "winograd_tile(float*)": "custom"
    }


@pytest.mark.parametrize(
    "name",
    ["void cub::CUB_300001_SM_900::detail::scan::DeviceScanKernel<float>(float*)", "_ZN3cub17CUB_300001_SM_9006"],
)
def test_a_template_that_the_submission_instantiates_is_custom(name: str) -> None:
    symbol = "_ZN3cub17CUB_300001_SM_9006detail4scan16DeviceScanKernelIfEEvPT_"
    assert origins(described(trace((name, 1.0)), kernel("x"), lambda part: part in symbol)) == {name: "custom"}
    assert origins(described(trace((name, 1.0)), kernel("x"))) == {name: "other"}


def test_operators_of_a_host_are_no_kernels_and_get_no_flag() -> None:
    launched = trace(("aten::mm", 3.0), ("axpy", 1.0), source=CPU_OPERATORS)
    report = described(launched, kernel(AXPY, KernelType.TRITON))
    assert (report["source"], report["custom_share"], report["streams"], report["flags"]) == (
        "cpu_operators", None, None, [],
    )  # fmt: skip
    assert origins(report) == {"aten::mm": "other", "axpy": "other"}


@pytest.mark.parametrize("launched", [[(NVJET, 98.0), ("axpy", 2.0)], [(NVJET, 9.0), (ELEMENTWISE, 1.0)]])
def test_a_type_that_brings_its_own_kernels_is_flagged_where_others_do_the_work(
    launched: list[tuple[str, float]],
) -> None:
    (flag,) = described(trace(*launched), kernel(AXPY, KernelType.TRITON))["flags"]
    assert flag["code"] == FlagCode.KERNELS_NOT_FROM_SOURCE and NVJET in flag["message"]
    assert flag["data"]["kernel_type"] == "triton" and flag["data"]["device_time_share"] >= 0.98
    assert described(trace(*launched), kernel(AXPY, KernelType.TORCH))["flags"] == []


def test_a_twentieth_of_the_time_in_its_own_kernels_is_enough() -> None:
    launched = trace((NVJET, 94.0), ("axpy", 6.0))
    assert described(launched, kernel(AXPY, KernelType.TRITON))["flags"] == []


def test_a_compilers_kernels_are_not_the_submissions_own() -> None:
    (flag,) = described(trace(("triton_poi_fused_add_0", 5.0)), kernel("x = 1", KernelType.TRITON))["flags"]
    assert flag["code"] == FlagCode.KERNELS_NOT_FROM_SOURCE


def test_kernels_that_the_trace_left_out_are_not_held_against_a_submission() -> None:
    cut = LaunchTrace(CUPTI, 2, (LaunchedKernel(NVJET, 2, 50.0),), 140, 100.0, 70, 1, 0.0)
    assert described(cut, kernel(AXPY, KernelType.TRITON))["flags"] == []


def test_work_left_on_another_stream_is_named_and_joined_work_is_not() -> None:
    (flag,) = described(trace(("axpy", 100.0), stray_us=40.0), kernel(AXPY, KernelType.TRITON))["flags"]
    assert flag["code"] == FlagCode.WORK_ON_OTHER_STREAMS
    assert flag["data"] == {"device_time_share": pytest.approx(0.4)}
    assert described(trace(("axpy", 100.0), stray_us=0.5), kernel(AXPY, KernelType.TRITON))["flags"] == []


def test_forged_figures_stay_shares() -> None:
    forged = LaunchTrace(CUPTI, 1, (LaunchedKernel("axpy", 1, 1e9), LaunchedKernel("fwd", 1, 1e9)), 0, 1.0, 2, 9, 1e14)
    report = described(forged, kernel(AXPY))
    assert report["custom_share"] == 1.0 and all(row["share"] <= 1.0 for row in report["kernels"])
    assert report["flags"][0]["data"]["device_time_share"] == 1.0
    assert described(LaunchTrace(CUPTI, 1, (LaunchedKernel("axpy", 1, 0.0),), 1, 0.0, 1, 1, 0.0), kernel(AXPY))
