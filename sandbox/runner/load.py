"""Making a kernel callable in its runner, or anew with noise on its constant parameters."""

from __future__ import annotations

from pathlib import Path

from backends.base import Artifact, Executable, Target
from backends.registry import backend
from domain import value as values
from domain.kernel import Kernel
from sandbox.protocol import init_args
from sandbox.protocol.channel import Message
from sandbox.runner.parameter_noise import kept_elsewhere, noised_parameters


def loaded(kernel: Kernel, target: Target, message: Message, folder: Path) -> tuple[Executable, Message]:
    """The kernel, made as that message says, and what is told of it."""
    artifact = Artifact(**message["artifact"])
    arguments, seed = init_args.taken(values.decode(message["init"])), int(message["seed"])
    noise = message["noise"]
    keeps = noise is not None and kept_elsewhere(folder)
    with noised_parameters(noise, widely=bool(message["widely"])):
        made = backend(kernel.kernel_type).load(kernel, folder, target, artifact, arguments, seed)
    told = init_args.told(made.init_inputs())
    return made, {"op": "loaded", "entry": made.entry, "init": told, "facts": artifact.facts, "keeps": keeps}
