"""Whose kernels a trace names, by names that real profilers gave; and what is said about them."""

from __future__ import annotations

import time

import pytest

from domain.flags import FlagCode
from domain.kernel import Kernel, KernelType
from profiling.launches.library_names import bare_name, library_of, mangled_part, qualified_name
from profiling.launches.report import described
from profiling.launches.source_kernels import MAX_CHARS, defined_kernels
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

REAL = {
    ELEMENTWISE: "PyTorch",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)": "PyTorch",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*)": "PyTorch",
    "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(": "PyTorch",
    "void at_cuda_detail::cub::DeviceRadixSortSingleTileKernel<at_cuda_detail::cub::": "PyTorch",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false>": "PyTorch",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t": "PyTorch",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0": "cuDNN",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>": "cuDNN",
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x32x32_stage4_warpsize4": "cuDNN",
    "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>": "cuDNN",
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>(int, int, int": "cuDNN",
    "void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*, int, int, int, int, int, int": "cuDNN",
    "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v0": "cuDNN",
    NVJET: "cuBLAS",
    GEMVX: "cuBLAS",
    "ampere_sgemm_128x64_tn": "cuBLAS",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn": "cuBLAS",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_execute_segment_k_off_kernel__5x_cublas": "cuBLAS",
    "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_stage5": "cuBLAS",
    "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8": "cuBLAS",
    "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8": "cuBLAS",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4>(cutlass_80_tensorop": "cuBLAS",
    "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x32x16_1x1x1_3_nnn_align1_bias_f32_relu": "cuBLAS",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, cublasGemv": "cuBLAS",
    "void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, false, cublasGemvTensorStridedBatched<float const>": "cuBLAS",
    "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, false, false>": "cuBLAS",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false>": "cuBLAS",
    "void regular_fft<192u, EPT<12u, 16u>, 16u, 2u, (padding_t)6, (twiddle_t)0": "cuFFT",
    "void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int, int, int": "MAGMA",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "NCCL",
    "cupy_add__float32_float32_float32": "CuPy",
    "void flash::flash_fwd_kernel<flash::Flash_fwd_kernel_traits<128, 64, 64, 4, false, false": "FlashAttention",
}
OF_NOBODY = [
    "axpy",
    "axpy(float const*, float const*, float*, int, float)",
    "void mine::fused<4, at::native::CUDAFunctor_add<float>, cub::BlockReduce<float, 256> >(int)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>",
    "triton_poi_fused_add_mul_0",
    "kernel_cutlass_kernel_flash_attn",
    "matmul_kernel",
]


@pytest.mark.parametrize(("name", "library"), [*REAL.items(), *((name, None) for name in OF_NOBODY)])
def test_a_kernels_library_is_told_by_its_name_however_it_was_cut(name, library):
    assert library_of(name) == library
    assert library_of(name[:64]) in (library, None)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("axpy", ["axpy"]),
        ("axpy(float const*, int)", ["axpy"]),
        ("void ns::(anonymous namespace)::deep::axpy<float, 2>(int)", ["ns", "deep", "axpy"]),
        (ELEMENTWISE, ["at", "native", "vectorized_elementwise_kernel"]),
        (GEMVX, ["internal", "gemvx", "kernel"]),
        ("void (anonymous namespace)::mine<float>(float*)", ["mine"]),
        ("cudapy::__main__::axpy[abi:v1][abi:c8tJTIcFKz](Array<float, 1>)", ["cudapy", "__main__", "axpy"]),
        ("_Z4axpyPKfS0_Pfif", ["axpy"]),
        ("_ZN2ns4axpyIfLi4EEEvPT_", ["ns", "axpy"]),
        ("_Z", ["_Z"]),
        ("_Z9cut", ["cut"]),
        ("", [""]),
        ("{lambda()#1}", ["{lambda()#1}"]),
    ],
)
def test_a_kernels_own_name(name, parts):
    assert qualified_name(name) == parts and bare_name(name) == parts[-1]


def test_the_part_of_a_symbol_that_a_name_becomes():
    assert mangled_part("void ns::axpy<float, 4>(float*)") == "2ns4axpy"


def kernel(source, kernel_type=KernelType.TORCH):
    return Kernel(source, kernel_type)


CUDA = """
// __global__ void in_a_comment(float* x) {}
/* __global__ void in_another(float* x) {} */
namespace ns {
template <typename T, int N>
__global__ void __launch_bounds__(256, (2 + 1))
scale(T* x) { helper(x); }
}
extern "C" __global__ void axpy(const float* x, float* out) {}
__device__ float helper(float* x) { return *x; }
"""
TRITON = '''
"""About `@triton.jit def in_a_docstring(x)`."""
import functools, torch, triton
import triton.language as tl
from triton import jit as compiled

@triton.jit
def helper(x):
    return x + 1

@triton.autotune(configs=[], key=["n"])
@triton.jit(do_not_specialize=["n"])
def add(x, n, BLOCK: tl.constexpr):
    tl.store(x, helper(tl.load(x)))

@compiled
def other(x): pass

@triton.jit(repr=lambda spec: "named")
def renamed(x): pass

@torch.jit.script
def scripted(x): return x

@functools.cache
def plain(x): return x
'''


def test_the_kernels_that_a_source_defines():
    assert defined_kernels(kernel(CUDA, KernelType.CUDA)) == {"scale", "axpy"}
    assert defined_kernels(kernel(TRITON, KernelType.TRITON)) == {"add"}
    inline = f'import torch\nsource = r"""{CUDA}"""\nname = f"__global__ void made(" + "float* x)"\n'
    assert defined_kernels(kernel(inline, KernelType.TORCH_CUDA)) == {"scale", "axpy", "made"}


@pytest.mark.parametrize("source", ["def f(:", "\0", "x = " + "(" * 1000, "# " + "é" * MAX_CHARS, "x = 1"])
def test_a_source_that_tells_nothing_defines_nothing(source):
    assert defined_kernels(kernel(source)) == frozenset()


@pytest.mark.parametrize("text", ["/*", "#if 0\n", "__global__ ", "__global__ __a__(", "(", "//", "__global__ a<"])
def test_a_hostile_source_is_scanned_in_no_time(text):
    started = time.process_time()
    defined_kernels(kernel(text * (MAX_CHARS // len(text)), KernelType.CUDA))
    assert time.process_time() - started < 2.0


def trace(*launched, stray_us=0.0, distinct=None, source=CUPTI):
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
        stray_us if on_device else None,
    )


def origins(told):
    return {row["name"]: row["origin"] for row in told["kernels"]}


AXPY = 'import triton\n@triton.jit\ndef axpy(x): pass\nclass ModelNew:\n    """Uses matmul, reduce_kernel."""\n'


def test_kernels_are_told_with_figures_per_call():
    told = described(trace(("axpy", 30.0), (ELEMENTWISE, 10.0)), kernel(AXPY, KernelType.TRITON))
    assert told == {
        "advisory": True,
        "source": "cupti",
        "calls": 2,
        "device_time_us": 20.0,
        "launches": 2.0,
        "streams": 1,
        "custom_share": 0.75,
        "kernels": [
            {"name": "axpy", "launches": 1.0, "share": 0.75, "origin": "custom"},
            {"name": ELEMENTWISE, "launches": 1.0, "share": 0.25, "origin": "library", "library": "PyTorch"},
        ],
        "kernels_omitted": 0,
        "flags": [],
    }


def test_whose_a_kernel_is():
    reduce = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)"
    names = [NVJET, reduce, "Memcpy DtoD (Device -> Device)", "Memset (Device)", "triton_red_fused_sum_0", "fwd_kernel"]
    told = described(trace(*((name, 1.0) for name in names)), kernel(AXPY))
    assert list(origins(told).values()) == ["library", "library", "memory", "memory", "compiler", "unknown"]


def test_a_kernel_called_like_a_librarys_is_its_own_where_the_source_defines_it():
    source = 'code = "__global__ void winograd_tile(float* x) {}"'
    assert origins(described(trace(("winograd_tile(float*)", 1.0)), kernel(source))) == {
        "winograd_tile(float*)": "custom"
    }
    assert origins(described(trace(("winograd_tile(float*)", 1.0)), kernel("# winograd_tile"))) == {
        "winograd_tile(float*)": "library"
    }


def test_what_the_submission_instantiated_itself_is_its_own():
    name = "void cub::CUB_300001_SM_900::detail::scan::DeviceScanKernel<float>(float*)"
    symbol = "_ZN3cub17CUB_300001_SM_9006detail4scan16DeviceScanKernelIfEEvPT_"
    assert origins(described(trace((name, 1.0)), kernel("x"), lambda part: part in symbol)) == {name: "custom"}
    assert origins(described(trace((name, 1.0)), kernel("x"))) == {name: "library"}


def test_operators_of_a_host_are_no_kernels_and_get_no_flag():
    told = described(trace(("aten::mm", 3.0), ("mine::op", 1.0), source=CPU_OPERATORS), kernel(AXPY, KernelType.TRITON))
    assert (told["source"], told["custom_share"], told["streams"], told["flags"]) == ("cpu_operators", None, None, [])
    assert origins(told) == {"aten::mm": "library", "mine::op": "unknown"}


@pytest.mark.parametrize("kernel_type", [KernelType.TRITON, KernelType.TORCH])
def test_a_decoy_is_named(kernel_type):
    (flag,) = described(trace((NVJET, 9.0), (ELEMENTWISE, 1.0)), kernel(AXPY, kernel_type))["flags"]
    assert flag["code"] == FlagCode.OWN_KERNELS_NOT_LAUNCHED and flag["data"] == {"defined_kernels": 1}
    assert "(axpy)" in flag["message"] and f"{NVJET} (cuBLAS)" in flag["message"]
    (flag,) = described(trace(), kernel(AXPY, kernel_type))["flags"]
    assert flag["code"] == FlagCode.OWN_KERNELS_NOT_LAUNCHED


def test_a_fig_leaf_is_named_for_types_that_bring_kernels_of_their_own():
    shown = trace((NVJET, 98.0), ("axpy", 2.0))
    (flag,) = described(shown, kernel(AXPY, KernelType.TRITON))["flags"]
    assert flag["code"] == FlagCode.LIBRARY_KERNELS_ONLY and "cuBLAS" in flag["message"]
    assert flag["data"] == {"device_time_share": pytest.approx(0.98), "kernel_type": "triton"}
    assert described(shown, kernel(AXPY, KernelType.TORCH))["flags"] == []
    assert described(trace((NVJET, 90.0), ("axpy", 10.0)), kernel(AXPY, KernelType.TRITON))["flags"] == []


def test_a_compilers_kernels_are_not_the_submissions_own():
    (flag,) = described(trace(("triton_poi_fused_add_0", 5.0)), kernel("x = 1", KernelType.TRITON))["flags"]
    assert flag["code"] == FlagCode.LIBRARY_KERNELS_ONLY and "torch.compile" in flag["message"]


def test_what_is_not_known_is_not_held_against_a_submission():
    assert described(trace(("fwd_kernel", 5.0)), kernel("x = 1", KernelType.TRITON))["flags"] == []
    assert described(trace((NVJET, 5.0), distinct=70), kernel(AXPY, KernelType.TORCH))["flags"] == []


def test_work_left_on_another_stream_is_named_and_joined_work_is_not():
    (flag,) = described(trace(("axpy", 100.0), stray_us=40.0), kernel(AXPY, KernelType.TRITON))["flags"]
    assert flag["code"] == FlagCode.WORK_ON_OTHER_STREAMS
    assert flag["data"] == {"device_time_share": pytest.approx(0.4)}
    assert described(trace(("axpy", 100.0), stray_us=0.5), kernel(AXPY, KernelType.TRITON))["flags"] == []


def test_forged_figures_stay_shares():
    forged = LaunchTrace(
        CUPTI, 1, (LaunchedKernel("axpy", 1, 1e9), LaunchedKernel("fwd", 1, 1e9)), 0, 1.0, 2, 9, 1e14, 1e14
    )
    told = described(forged, kernel(AXPY))
    assert told["custom_share"] == 1.0 and all(row["share"] <= 1.0 for row in told["kernels"])
    assert told["flags"][0]["data"]["device_time_share"] == 1.0
    assert described(LaunchTrace(CUPTI, 1, (LaunchedKernel("axpy", 1, 0.0),), 1, 0.0, 1, 1, 0.0, 0.0), kernel(AXPY))
