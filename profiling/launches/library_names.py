"""Recognises the library of a device kernel by its name.

Names are as CUPTI gives them and torch's profiler demangles them. A name proves nothing: any kernel may have it.
"""

from __future__ import annotations

import re

LIBRARIES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (library, re.compile(pattern, re.VERBOSE))
    for library, pattern in (
        # pytorch/pytorch: aten/src/ATen/native/cuda, c10/cuda; the softmax of PersistentSoftmax.cuh and the arange of
        # RangeFactories.cu stand in an unnamed namespace of their own, attention in native/transformers/cuda.
        (
            "PyTorch",
            r"""^at::(native|cuda):: | ^at_cuda_detail:: | ^c10:: | ^pytorch_flash:: | ^fmha_cutlass[FB]_
            | ^\(anonymous\ namespace\)::(softmax_warp_|elementwise_kernel_with_index)
            """,
        ),
        # Before cuBLAS: cuDNN shares kernel generators with it. Its names have cudnn (xmma_cudnn::, ..._5x_cudnn) or a
        # convolution (fprop, dgrad, wgrad) in them.
        (
            "cuDNN",
            r"""cudnn | ^implicit_(convolve|gemm)|^precomputed_convolve|^explicit_convolve | winograd
            | xmma_(fprop|dgrad|wgrad)_ | ^(dgrad|wgrad)\w*_engine | ^conv2d_grouped_direct_kernel | ^fft2d_[rc]2[rc]_
            """,
        ),
        # cuBLAS and cuBLASLt 10 to 13 as profilers show them: nvjet_tst_... from Hopper on, sm80_xmma_gemm_...,
        # ampere_sgemm_..., cutlass_80_tensorop_... by itself or in a cutlass::Kernel2<>, gemv2T_kernel_val<...>.
        (
            "cuBLAS",
            r"""cublas | ^nvjet_ | ^sm\d+_xmma_gemm | ^(maxwell|volta|turing|ampere|ada|hopper)_\w*gemm
            | ^(cutlass::Kernel2?<)?cutlass_\d+_(wmma_)?(tensorop|simt)_ | ^cutlass3x_sm\d+_ | ^internal::gemvx::kernel
            | ^gemv(2[NT]|NSP|N|T)?_kernel | ^gemm(SN|k1)\w*_kernel | ^gemmk1_ | ^splitKreduce_kernel
            | ^(dot|reduce_1Block|scal|asum|nrm2|iamax)_kernel<.*cublas
            """,
        ),
        ("cuFFT", r"^((regular|vector)_fft|multi_bluestein_fft|regular_bluestein_fft|composite_2way_fft)"),
        ("cuSPARSE", r"^cusparse"),
        ("cuSOLVER", r"^cusolver"),
        ("MAGMA", r"^magma"),
        ("NCCL", r"^nccl(Dev)?Kernel"),
        ("CUB", r"^(\w+::)*cub::"),
        ("Thrust", r"^thrust::"),
        # cupy/cupy: its own ufuncs and reductions are called cupy_<name>__<dtypes>.
        ("CuPy", r"^cupyx?_"),
        # Dao-AILab/flash-attention, beside the copy that torch carries.
        ("FlashAttention", r"^flash(::|_fwd_|_bwd_)"),
    )
)

INDUCTOR = re.compile(r"^triton_(poi|red|per|tem|mm|bmm|for|spl|unk)_")
"""Kernels of torch.compile: triton_<kind>_<fused operators>_<number> (torch/_inductor/codegen/triton.py)."""

MEMORY = re.compile(r"^Mem(cpy|set)\b")
"""CUPTI's names of the driver's copies and fills in the trace."""

_RETURNED = re.compile(r"^(?:void|std::enable_if<.*?>::type)\s+")
_UNNAMED = re.compile(r"\((?:anonymous namespace|unnamed)\)::|_GLOBAL__N__\w*::|_INTERNAL_\w*::")
_QUALIFIED = re.compile(r"[A-Za-z_$][\w$]*(?:::[A-Za-z_$][\w$]*)*")
_LENGTH = re.compile(r"\d{1,4}")


def qualified_name(name: str) -> list[str]:
    """The named namespaces and the name of a kernel, without return type, template arguments and parameters.

    It reads from the left, so that a truncated name works, too: [ns, axpy] for "void ns::axpy<float, 4>(float*, …".
    """
    if name.startswith("_Z"):
        return _of_mangled(name)
    plain = _UNNAMED.sub("", _RETURNED.sub("", name))
    match = _QUALIFIED.match(plain)
    return match[0].split("::") if match else [plain]


def bare_name(name: str) -> str:
    """The last of `qualified_name`."""
    return qualified_name(name)[-1]


def mangled_part(name: str) -> str:
    """The part of a mangled symbol that all instantiations of that name share: "2ns4axpy"."""
    return "".join(f"{len(part)}{part}" for part in qualified_name(name))


def library_of(name: str) -> str | None:
    """The library whose kernels have such names; None if no known one does."""
    plain = _RETURNED.sub("", name)
    return next((library for library, pattern in LIBRARIES if pattern.search(plain)), None)


def _of_mangled(name: str) -> list[str]:
    """The length-prefixed names at the front of a mangled one: [ns, axpy] for "_ZN2ns4axpyIfEEvPT_"."""
    parts: list[str] = []
    position = 3 if name.startswith("_ZN") else 2
    while (length := _LENGTH.match(name, position)) is not None:
        position = length.end() + int(length[0])
        parts.append(name[length.end() : position])
        if not name.startswith("_ZN"):
            break
    return [part for part in parts if not part.startswith("_GLOBAL__N_")] or [name]
