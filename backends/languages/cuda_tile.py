"""cuTile, which tileiras of the CUDA toolkit compiles. It has no kernel type: it was not tried on a card."""

from __future__ import annotations

from backends.languages.language import Language
from domain.fault import OPERATORS_PART

LANGUAGE = Language(
    name="cuda_tile",
    title="cuTile",
    module="cuda.tile",
    package="cuda-tile",
    caches={"CUDA_TILE_CACHE_DIR": "cuda_tile"},
    tools=dict.fromkeys(
        (
            "'tileiras' compiler not found",
            "for the --gpu-name option: Cannot find option named",
            "unsupported Tile IR bytecode version",
            "failed to load the dynamic nvJitLink library",
        ),
        f"cuTile compiles with tileiras: {OPERATORS_PART} takes a base image with the toolkit of CUDA 13.2 or newer",
    ),
    refusals=("cuda.tile._exception.",),
)
