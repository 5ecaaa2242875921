"""Client of a kernel evaluation service: a GPU kernel in, a verdict out."""

from kernel_eval_client import errors
from kernel_eval_client.artifact import Artifact
from kernel_eval_client.async_client import AsyncClient, Finished
from kernel_eval_client.builder import (
    IOContractBuilder,
    create_arange_spec,
    create_full_spec,
    create_ones_spec,
    create_randn_spec,
    create_tensor_spec,
    create_uniform_spec,
    create_zeros_spec,
)
from kernel_eval_client.case_result import CaseResult
from kernel_eval_client.client import Client
from kernel_eval_client.contract import ArgSpec, IOContract, LaunchConfig, LaunchDim, TensorData, TensorInit, TensorSpec
from kernel_eval_client.contract_from_args import contract_from
from kernel_eval_client.device_metrics import DeviceMetrics
from kernel_eval_client.events import Event
from kernel_eval_client.flag import Flag
from kernel_eval_client.flow import Retry
from kernel_eval_client.job import Job
from kernel_eval_client.kernel import Kernel, KernelType, cuda, guess_type, multi_kernel, torch, torch_cuda, triton
from kernel_eval_client.machine_code import MachineCode
from kernel_eval_client.original import KernelCode, KernelEvalClient, load_from_file, save_to_file, to_json
from kernel_eval_client.result import Comparison, KernelResult, Result, Verdict
from kernel_eval_client.sanitizer import Sanitizer
from kernel_eval_client.submission import Submission
from kernel_eval_client.timing import RuntimeStats, Speedup, Timing

__all__ = [
    "ArgSpec",
    "Artifact",
    "AsyncClient",
    "CaseResult",
    "Client",
    "Comparison",
    "DeviceMetrics",
    "Event",
    "Finished",
    "Flag",
    "IOContract",
    "IOContractBuilder",
    "Job",
    "Kernel",
    "KernelCode",
    "KernelEvalClient",
    "KernelResult",
    "KernelType",
    "LaunchConfig",
    "LaunchDim",
    "MachineCode",
    "Result",
    "Retry",
    "RuntimeStats",
    "Sanitizer",
    "Speedup",
    "Submission",
    "TensorData",
    "TensorInit",
    "TensorSpec",
    "Timing",
    "Verdict",
    "contract_from",
    "create_arange_spec",
    "create_full_spec",
    "create_ones_spec",
    "create_randn_spec",
    "create_tensor_spec",
    "create_uniform_spec",
    "create_zeros_spec",
    "cuda",
    "errors",
    "guess_type",
    "load_from_file",
    "multi_kernel",
    "save_to_file",
    "to_json",
    "torch",
    "torch_cuda",
    "triton",
]
