"""The guess of a kernel's type: the client's rules are the server's, and both know every source of ours."""

from __future__ import annotations

import json

import pytest

from domain.kernel import KernelType
from domain.kernel_guess import LOOKS_LIKE, guess_type, other_type, uses_triton
from domain.paths import ROOT
from kernel_eval_client import kernel_guess as clients

CUDA = '#include <cuda_runtime.h>\n\nextern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n'
CLASSES = "template <class T>\nclass Tile {\n};\n__global__ void k(float* x) {}\n"
TORCH = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
TRITON = "import triton\n\n@triton.jit\ndef add(x):\n    pass\n"
INLINE = f"from torch.utils.cpp_extension import load_inline\nsource = '''{CUDA}'''\n"


def test_the_client_has_the_same_rules() -> None:
    server = (ROOT / "domain" / "kernel_guess.py").read_text(encoding="utf-8")
    client = (ROOT / "client" / "kernel_eval_client" / "kernel_guess.py").read_text(encoding="utf-8")
    assert server.partition("\nCUDA_FILES")[2] == client.partition("\nCUDA_FILES")[2] != ""


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (CUDA, "cuda"),
        (CLASSES, "cuda"),
        ("/**\n @brief scales x\n import note: in place\n*/\n" + CUDA, "cuda"),
        (INLINE.replace("#include", "/* for\n @x */\n#include"), "torch_cuda"),
        (TORCH, "torch"),
        (TRITON, "triton"),
        (INLINE, "torch_cuda"),
        ("x = 1", "torch"),
    ],
)
def test_a_source_tells_its_type(source: str, kind: str) -> None:
    assert guess_type(source) == kind and str(clients.guess_type(source)) == kind
    assert guess_type("", "kernel.cu") is KernelType.CUDA


def test_every_example_is_of_its_own_type() -> None:
    examples = [json.loads(path.read_text()) for path in sorted((ROOT / "examples").glob("*/request.json"))]
    kernels = [one for each in examples for name in ("kernel", "custom_kernel") if (one := each.get(name))]
    assert len(kernels) > 8
    for path, one in zip(sorted((ROOT / "examples").glob("*/request.json")), kernels, strict=True):
        source = (path.parent / one["source_file"]).read_text()
        kind = KernelType(one["kernel_type"])
        assert guess_type(source, one["source_file"]) is (KernelType.TRITON if kind == "multi_kernel" else kind)
        assert other_type(source, kind) is None


@pytest.mark.parametrize(
    ("source", "kind", "says"),
    [
        (CUDA, KernelType.TORCH, "CUDA C++: send it as `cuda` with its contract in `io`"),
        (CUDA, KernelType.TRITON, "CUDA C++: send it as `cuda` with its contract in `io`"),
        (TORCH, KernelType.CUDA, "PyTorch: send it as `torch`"),
        (INLINE, KernelType.CUDA, "PyTorch with inline CUDA: send it as `torch_cuda`"),
        (TORCH, KernelType.TRITON, None),
        (TRITON, KernelType.TORCH, None),
        ("float4 load(const float* x);", KernelType.CUDA, None),
    ],
)
def test_a_type_that_the_source_cannot_have_is_told(source: str, kind: KernelType, says: str | None) -> None:
    assert other_type(source, kind) == (None if says is None else f"{LOOKS_LIKE}{says}")


def test_a_megabyte_takes_no_time_that_a_client_could_use() -> None:
    """Each rule looks at a line alone; a rule over many lines would take the square of their number."""
    for line in ("class a(", "@", " " * 40, "#", "def a", "/*", "/* */", " /*/"):
        assert not uses_triton((line + "\n") * 100_000)
        guess_type((line + "\n") * 100_000)


@pytest.mark.parametrize("line", ["class " + "a" * 1_000_000, "class a" + ": " * 500_000 + ";"])
def test_one_line_of_a_megabyte_takes_no_time_either(line: str) -> None:
    """The API asks, and a worker's own process does: a rule over the square of it would stop both for an hour."""
    assert other_type(f"{line}\n__global__", KernelType.CUDA) is None
