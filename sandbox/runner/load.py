"""Loads the kernel of a message in its runner, optionally with noise on its constant parameters."""

from __future__ import annotations

from pathlib import Path

from backends.base import Artifact, Executable, Target
from backends.registry import backend
from backends.source import init_args
from domain import value as values
from domain.kernel import Kernel
from sandbox.protocol.channel import Message
from sandbox.runner.parameter_noise import left_global_state, noised_parameters


def assignment(message: Message) -> tuple[Kernel, Target]:
    return Kernel.from_wire(message["kernel"]), Target.from_wire(message["target"])


def load_kernel(kernel: Kernel, target: Target, message: Message, folder: Path) -> tuple[Executable, Message]:
    artifact = Artifact(**message["artifact"])
    borrowed, seed = init_args.from_wire(values.decode(message["borrowed"])), int(message["seed"])
    noise = message["noise"]
    left_state = noise is not None and left_global_state(folder)
    with noised_parameters(noise, all_constants=bool(message["all_constants"])):
        executable = backend(kernel.kernel_type).load(kernel, folder, target, artifact, borrowed, seed)
    return executable, {
        "op": "loaded",
        "entry": executable.entry,
        "arguments": init_args.to_wire(executable.arguments()),
        "constructed_on": executable.constructed_on,
        "has_inputs": executable.has_inputs,
        "facts": artifact.facts,
        "left_state": left_state,
    }
