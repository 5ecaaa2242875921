"""Compiles a Triton kernel in the builder, without a GPU, so that the runner finds the machine code in the cache."""

from __future__ import annotations

from typing import Any

import torch
from triton.runtime import driver

from backends.dry_run.pretended_triton import PretendedDriver, compile_launch
from backends.source.triton_errors import explained, is_rejection
from backends.triton import cache
from backends.triton.launch import TritonLaunch, compile_fault
from domain.contract import IOContract


def compile_ahead(launch: TritonLaunch, io: IOContract, arch: str) -> dict[str, Any]:
    """Fills Triton's cache with the code for this contract (every configuration of an autotuned kernel).

    Returns facts: what was compiled, or why it could not be here (the first call then compiles). Raises KernelFault
    (compile_error) where Triton rejects the kernel.
    """
    before = driver._active
    driver.set_active(PretendedDriver(arch))
    try:
        compiled = explained(lambda: launch.warm_up([_stand_in(argument) for argument in io.args]))
    except Exception as error:
        if is_rejection(error):
            raise compile_fault(launch.name, error) from error
        # A kernel's own pruning or heuristics may query the device; the runner then compiles.
        return {"compiled_ahead": False, "notes": [f"compiled at the first call: {type(error).__name__}: {error}"]}
    finally:
        driver.set_active(before)
    kernels = [kernel for kernel in (compiled if isinstance(compiled, list) else [compiled]) if kernel is not None]
    notes = _host_code([(kernel.src, kernel.metadata) for kernel in kernels])
    return {"compiled_ahead": True, "variants": [_resources(kernel, arch) for kernel in kernels], "notes": notes}


def _host_code(kernels: list[tuple[Any, Any]]) -> list[str]:
    """Compiles the C code that launches these kernels, which Triton otherwise does at the first launch; notes
    failures, which the first launch repeats."""
    try:
        for src, metadata in kernels:
            compile_launch(src, metadata)
    except Exception as error:
        return [f"its launcher is compiled at the first call: {type(error).__name__}: {error}"]
    return []


def _stand_in(argument: Any) -> Any:
    """A dtype stands for a tensor. Triton then assumes an aligned address, which real tensors have."""
    if not argument.is_tensor:
        return argument.value
    return getattr(torch, argument.tensor_spec.dtype if argument.tensor_spec else "float32")


def _resources(kernel: Any, arch: str) -> dict[str, Any]:
    metadata = kernel.metadata
    cubin = getattr(kernel, "asm", {}).get("cubin")
    return cache.configuration_facts(cubin, arch, metadata.num_warps, metadata.num_stages, metadata.shared)
