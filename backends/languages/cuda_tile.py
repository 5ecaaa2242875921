"""cuTile: kernels over tiles, which the toolkit's tileiras compiles."""

from __future__ import annotations

from backends.languages.language import Language
from domain.kernel import KernelType

LANGUAGE = Language(
    kernel_type=KernelType.CUDA_TILE,
    title="cuTile",
    module="cuda.tile",
    package="cuda-tile",
    caches={"CUDA_TILE_CACHE_DIR": "cuda_tile"},
    tools={
        "'tileiras' compiler not found": "cuTile compiles with tileiras: the operator takes a base image with the "
        "toolkit of CUDA 13.2 or newer"
    },
    refusals=("cuda.tile._exception.",),
)
