"""Whose a device kernel is, by its name: what the libraries call theirs.

Names as CUPTI gives them and torch's profiler demangles them. A name proves nothing: anybody may give it to a kernel.
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
        # Before cuBLAS, for cuDNN has kernels of the same makers, which say so (xmma_cudnn::, ..._5x_cudnn) or are of a
        # convolution (fprop, dgrad, wgrad).
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
"""torch/_inductor/codegen/triton.py: what torch.compile writes is called triton_<kind>_<fused operators>_<number>."""

MEMORY = re.compile(r"^Mem(cpy|set)\b")
"""Copies and fills of the driver, as CUPTI's activities are called in the trace."""

_RETURNED = re.compile(r"^(?:void|std::enable_if<.*?>::type)\s+")
_UNNAMED = re.compile(r"\((?:anonymous namespace|unnamed)\)::|_GLOBAL__N__\w*::|_INTERNAL_\w*::")
_QUALIFIED = re.compile(r"[A-Za-z_$][\w$]*(?:::[A-Za-z_$][\w$]*)*")
_LENGTH = re.compile(r"\d{1,4}")


def qualified_name(name: str) -> list[str]:
    """The kernel's own name behind its named namespaces, without return type, template arguments and parameters.

    Read from the left, so that a name which was cut gives it too: [ns, axpy] of "void ns::axpy<float, 4>(float*, …".
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
    """What stands for that name in the symbol of every instantiation of it: "2ns4axpy"."""
    return "".join(f"{len(part)}{part}" for part in qualified_name(name))


def library_of(name: str) -> str | None:
    """The library that calls its kernels so; None where none is known to."""
    plain = _RETURNED.sub("", name)
    return next((library for library, pattern in LIBRARIES if pattern.search(plain)), None)


def _of_mangled(name: str) -> list[str]:
    """The length-prefixed names at the front of a mangled one: [ns, axpy] of "_ZN2ns4axpyIfEEvPT_"."""
    found: list[str] = []
    position = 3 if name.startswith("_ZN") else 2
    while (length := _LENGTH.match(name, position)) is not None:
        position = length.end() + int(length[0])
        found.append(name[length.end() : position])
        if not name.startswith("_ZN"):
            break
    return [part for part in found if not part.startswith("_GLOBAL__N_")] or [name]
