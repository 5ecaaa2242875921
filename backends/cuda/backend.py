"""Kernel type `cuda`: raw CUDA C++ compiled by NVRTC, which also reports the kernel's parameter types."""

from __future__ import annotations

import json
from pathlib import Path

from backends.base import ALONE, Artifact, Backend, Executable, ReferenceArguments, Target, Task
from backends.cuda.argument_packing import check_arguments, check_constants, mismatched_pointers
from backends.cuda.build import Build
from backends.cuda.signature import Parameter, constants, without_table
from backends.source.error_report import NO_DEVICE, RUN_ELSEWHERE
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Lack, Status

DEFAULT_ARCH = "sm_90"
"""The target of a worker without a GPU; the verdict there says only whether the source compiles."""

CUBIN, PTX, PLAN = "kernel.cubin", "kernel.ptx", "kernel.json"
"""File names of a build: machine code, PTX, and how to launch the kernel."""


class CudaBackend(Backend):
    """Raw CUDA C++ with one or many `__global__` functions."""

    def build(self, kernel: Kernel, folder: Path, target: Target, task: Task = ALONE) -> Artifact:
        """Compiles to machine code in `folder`, and checks the contract against the kernel's parameters."""
        io = contract_of(kernel)
        build = Build(kernel, target.arch or DEFAULT_ARCH)
        if target.arch is None:
            build.notes.append(f"{NO_DEVICE}: compiled for {build.arch}, not run")
        attempt = build.compile()
        passed = [argument for argument in io.args if not argument.is_constant]
        check_arguments(attempt.name, attempt.parameters, passed)
        build.notes += mismatched_pointers(attempt.parameters, passed)
        check_constants(io.constants, constants(attempt.compilation.ptx))
        plan = {
            "name": attempt.name,
            "symbol": attempt.symbol,
            "parameters": [parameter.to_wire() for parameter in attempt.parameters],
            "cooperative": attempt.cooperative,
            "dynamic_shared": attempt.dynamic_shared,
            "device_runtime": attempt.device_runtime,
        }
        if attempt.dynamic_shared and io.launch.shared_mem is None:
            build.notes.append(
                "the source declares `extern __shared__` and the contract no launch.shared_mem: 8 bytes a thread are "
                "provided, at least 1024; give launch.shared_mem in bytes to choose"
            )
        (folder / CUBIN).write_bytes(attempt.compilation.cubin)
        (folder / PTX).write_text(without_table(attempt.compilation.ptx), encoding="utf-8")
        (folder / PLAN).write_text(json.dumps(plan))
        return Artifact(facts=build.facts(attempt), log=attempt.warnings)

    def load(
        self, kernel: Kernel, folder: Path, target: Target, artifact: Artifact, borrowed: ReferenceArguments, seed: int
    ) -> Executable:
        """Loads the machine code into torch's context and lays out the argument buffer."""
        if not target.is_cuda:
            raise KernelFault(
                Status.UNSUPPORTED,
                f"compiled for {artifact.facts.get('arch', DEFAULT_ARCH)}, and not run: {NO_DEVICE}; {RUN_ELSEWHERE}",
                compiled=True,
                lacks=Lack.GPU,
            )
        import torch

        from backends.cuda.launch import CudaExecutable, load_module

        device = torch.device(target.device).index or 0
        plan = json.loads((folder / PLAN).read_text())
        return CudaExecutable(
            plan["name"],
            [Parameter.from_wire(parameter) for parameter in plan["parameters"]],
            contract_of(kernel),
            load_module((folder / CUBIN).read_bytes(), device),
            plan["symbol"],
            device,
            cooperative=plan["cooperative"],
            uses_dynamic_shared=plan["dynamic_shared"],
            # A build of an earlier version does not say it.
            uses_device_runtime=plan.get("device_runtime", True),
        )


def contract_of(kernel: Kernel) -> IOContract:
    """The kernel's contract. Raises KernelFault (contract_mismatch) without one."""
    if kernel.io is None:
        raise KernelFault(
            Status.CONTRACT_MISMATCH,
            "a raw CUDA kernel needs an IO contract: give io.args, one for each parameter, and for a kernel io.launch",
        )
    return kernel.io
