"""Where the toolkit's headers are looked for, and that the wheels alone are enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.cuda import headers
from backends.cuda.header_shims import defines_integer_types
from tests.backends.contracts import contract, scalar, tensor
from tests.backends.loading import built, kernel


@pytest.fixture(autouse=True)
def no_memory() -> Iterator[None]:
    headers.include_folders.cache_clear()
    yield
    headers.include_folders.cache_clear()


def toolkit(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_choose_folders_with_one_complete_set_uses_it_alone(tmp_path: Path) -> None:
    wheel = toolkit(tmp_path / "wheel", "cuda_fp16.h", "cccl/version")
    home = toolkit(tmp_path / "home", "cuda_fp16.h", "crt/mma.h")
    assert headers.choose_folders([wheel, tmp_path / "none", home]) == (home, wheel / "cccl")


def test_the_wheels_alone_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = [root for root in headers.toolkit_folders() if "site-packages" in root.parts]
    if not any((root / "cuda_fp16.h").is_file() for root in wheels):
        pytest.skip("the runtime's wheel is not installed here")
    monkeypatch.setattr(headers, "toolkit_folders", lambda: iter(wheels))
    source = """
    #include <cuda_runtime.h>
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    #include <cooperative_groups.h>
    #include <mma.h>
    #include <cub/block/block_reduce.cuh>
    __global__ void k(float* x, float s) { cooperative_groups::this_grid().sync(); x[0] = s; }
    """
    facts = built(kernel(source, "cuda", contract(tensor("x", 1), scalar("s", 1.0))), tmp_path).facts
    assert facts["parameters"] == "(float*, float)"
    assert all("site-packages" in folder.parts for folder in headers.include_folders())


@pytest.mark.parametrize(
    ("code", "own"),
    [("typedef long int64_t;", True), ("using uint32_t = unsigned;", True), ("uint32_t f(int64_t a);", False)],
)
def test_own_integers(code: str, own: bool) -> None:
    assert defines_integer_types(code) is own
