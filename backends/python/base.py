"""What every kernel type written in Python shares: import the source, find the entry, construct it, call it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from backends.base import Artifact, Backend, Executable, Target
from backends.extensions import jit_build
from backends.extensions.deferred_build import build_late
from backends.source.argument_binding import (
    by_position,
    construct,
    contract_arguments,
    guest_arguments,
    input_maker,
    signature_of,
)
from backends.source.entry_point import Entry, resolve
from backends.source.error_report import asks_for_gpu, fault, gradient_hint, reached_source, summary
from backends.source.input_inference import Plan, find_plan
from backends.source.module_loader import imported
from backends.source.rng_state import resumption, seed_everything
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status
from domain.value import Unserializable, leaves, replace


class PythonBackend(Backend):
    """A source in Python. It is executed as it is, once in the builder and once in the runner."""

    def entry(self, module: ModuleType, kernel: Kernel) -> Entry:
        """What to call; raises KernelFault (COMPILE_ERROR) when it is not there."""
        return resolve(module, kernel)

    def facts(self, entry: Entry, kernel: Kernel, target: Target) -> dict[str, Any]:
        """What a kernel type has to say about its entry after the import, while still in the builder."""
        return {}

    def build(self, kernel: Kernel, folder: Path, target: Target) -> Artifact:
        """Executes the source with no GPU visible, so that its extensions are compiled and its errors found.

        A source that insists on a GPU is deferred to the runner.
        """
        extensions = _prepared(folder, target)
        try:
            module = imported(kernel.source_code, folder)
        except BaseException as error:
            if target.is_cuda and asks_for_gpu(error):
                reason = f"the source needs a GPU while it is imported ({summary(error)})"
                return Artifact(deferred=reason, log=extensions.log)
            raise _import_fault(error, folder, target) from error
        entry = self.entry(module, kernel)
        extensions.require_device()
        build_late(extensions, module, entry, kernel.source_code)
        facts: dict[str, Any] = {"entry": entry.label, "extensions": extensions.built, "headers": extensions.headers}
        if extensions.kernels:
            facts["kernels"] = extensions.kernels
        facts |= self.facts(entry, kernel, target)
        return Artifact(facts=facts, log=extensions.log)

    def load(
        self, kernel: Kernel, folder: Path, target: Target, artifact: Artifact, init: list[Any] | None, seed: int
    ) -> Executable:
        """Executes the source again, where its extensions are found built, and constructs its class under the seed."""
        extensions = _prepared(folder, target)
        try:
            module = imported(kernel.source_code, folder)
        except BaseException as error:
            raise _import_fault(error, folder, target) from error
        entry = self.entry(module, kernel)
        try:
            executable = PythonExecutable(module, entry, kernel, folder, target, init, seed)
        except (Exception, SystemExit) as error:
            doing = f"constructing {entry.label}"
            own = input_maker("get_init_inputs", [module, entry.target])
            if isinstance(error, TypeError) and own is None and not reached_source(error):
                doing += f" (the source has no get_init_inputs() to give its arguments, and {_others(init)})"
            raise fault(error, doing, folder, target) from error
        extensions.require_device()
        executable.compiled = extensions.compiled
        return executable


class PythonExecutable(Executable):
    """A constructed module or a function, in the runner."""

    def __init__(
        self,
        module: ModuleType,
        entry: Entry,
        kernel: Kernel,
        folder: Path,
        target: Target,
        init: list[Any] | None,
        seed: int,
    ) -> None:
        self.entry = entry.label
        self._folder = folder
        self._target = target
        self._init: list[Any] | None = None
        self._inputs_on_device = target.is_cuda
        self._plan: Plan | None = None
        self._instance: Any = None
        self._callable: Callable[..., Any] = entry.target
        if entry.method is not None:
            maker = input_maker("get_init_inputs", [module, entry.target])
            self._init = self._made("get_init_inputs", maker, seed)
            seed_everything(seed)
            self._instance = construct(entry.target, self._init, self._on_device(init))
            if isinstance(self._instance, torch.nn.Module):
                self._instance = self._instance.to(target.device)
            # The instance itself for forward, so that hooks and torch.compile's wrapper run.
            through_call = isinstance(self._instance, torch.nn.Module) and entry.method == "forward"
            self._callable = self._instance if through_call else getattr(self._instance, entry.method)
        self._resume = resumption()
        self._signature = signature_of(getattr(self._instance, entry.method) if entry.method else entry.target)
        holders = [holder for holder in (module, self._instance, entry.target) if holder is not None]
        # Looked for once: as many sets are drawn as there are calls.
        self._get_inputs = input_maker("get_inputs", holders)
        self._passed = contract_arguments(self._signature, kernel.io)
        self._is_guest = kernel.io is None and self._get_inputs is None

    def resume(self) -> None:
        self._resume()

    def call(self, args: list[Any]) -> Any:
        if self._is_guest:
            self._passed, self._is_guest = guest_arguments(self._signature, args), False
        if self._passed is not None:
            args = [args[index] for index in self._passed]
        try:
            with torch.no_grad():
                return self._callable(*args)
        except Exception as error:
            doing = f"calling {self.entry}{gradient_hint(error)}"
            raise fault(error, doing, self._folder, self._target) from error

    def call_double(self, args: list[Any]) -> Any:
        doubled = replace(args, torch.Tensor, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
        if self._callable is not self._instance:
            return self.call(doubled)
        model: Any = copy.deepcopy(self._instance)
        model.double()
        single = self._callable
        try:
            self._callable = model
            return self.call(doubled)
        finally:
            self._callable = single

    def init_inputs(self) -> list[Any] | None:
        return self._init

    def own_inputs(self, seed: int) -> list[Any] | None:
        try:
            # On a GPU from the start where the source lets it: numbers drawn on the host and copied take a thousand
            # times as long, and the device is held meanwhile.
            if self._inputs_on_device:
                try:
                    with torch.device(self._target.device):
                        return self._made("get_inputs", self._get_inputs, seed)
                except Exception:
                    self._inputs_on_device = False
            return self._made("get_inputs", self._get_inputs, seed)
        except Exception as error:
            raise fault(error, "calling get_inputs()", self._folder, self._target) from error

    def inferred_inputs(self, seed: int) -> tuple[list[Any], str] | None:
        try:
            if self._plan is None:
                self._plan = find_plan(
                    self._first_call, self._signature, self._instance, self._target, seed, self.entry
                )
            return self._plan.draw(seed, self._target), f"inputs were inferred: {self._plan.described()}"
        except (Exception, SystemExit) as error:
            advice = "if those are at fault, give others in `io` or by get_inputs()"
            doing = f"calling {self.entry} with guessed inputs ({advice}){gradient_hint(error)}"
            raise fault(error, doing, self._folder, self._target) from error

    def _first_call(self, *args: Any) -> Any:
        self._resume()
        return self._callable(*args)

    def state(self) -> dict[str, Any]:
        own = self._weights()
        # A lazy module has none yet: its first call draws them, from where its constructor left the generators.
        return {} if any(is_lazy(value) for value in own.values()) else own

    def parameters(self) -> list[str]:
        if not isinstance(self._instance, torch.nn.Module):
            return []
        return [name for name, _ in self._instance.named_parameters(remove_duplicate=False)]

    def load_state(self, state: dict[str, Any]) -> bool:
        own = self._weights()
        # A lazy layer that has some of its tensors can neither make the others nor be called.
        waiting = any(is_lazy(value) and name not in state for name, value in own.items())
        if waiting or not all(name in own and _takes(own[name], given) for name, given in state.items()):
            return False
        with torch.no_grad():
            for name, given in state.items():
                value = own[name]
                if is_lazy(value):
                    value.materialize(given.shape)
                _once(value).copy_(_once(given, like=value))
        return True

    def _weights(self) -> dict[str, Any]:
        """The module's own tensors by name, lazy ones among them."""
        if not isinstance(self._instance, torch.nn.Module):
            return {}
        # With keep_vars: without, a lazy parameter is a copy, and its own would stay as it is.
        state = self._instance.state_dict(keep_vars=True)
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def _made(self, name: str, maker: Callable[[], Any] | None, seed: int) -> list[Any] | None:
        """What the source's own input maker gives under the seed, on the target; None when it has none."""
        if maker is None:
            return None
        seed_everything(seed)
        made = maker()
        if made is None:
            message = f"{name}() returned None; end it with `return [...]`"
            raise KernelFault(Status.RUNTIME_ERROR, message, compiled=True)
        if name == "get_inputs" and isinstance(made, dict):
            # Arguments by name; else a dict is itself the one argument.
            named = by_position(self._signature, made)
            made = [made] if named is None else named
        items = list(made) if isinstance(made, (list, tuple)) else [made]
        return list(self._on_device(items))

    def _on_device(self, value: Any) -> Any:
        return replace(value, torch.Tensor, lambda tensor: tensor.to(self._target.device))


def _prepared(folder: Path, target: Target) -> jit_build.Extensions:
    """Before the source is imported, which binds the names that it imports."""
    if not target.is_cuda:
        # Not above: it is made of the interpreter's inner names, which no GPU's kernel should depend on.
        from backends.interpreter.patches import install

        install()
    return jit_build.install(folder, target)


def _others(init: list[Any] | None) -> str:
    """Why a reference's constructor arguments did not do either."""
    if init is None:
        return "none of a reference's came"
    strangers = ", ".join(stranger.words for stranger in leaves(init, Unserializable))
    if strangers:
        return f"of the reference's some cannot cross to another process ({strangers}): define it here too"
    return f"the reference's {len(init)} do not fit"


def _takes(own: torch.Tensor, given: Any) -> bool:
    """Whether the one can be a copy of the other. What was quantised to integers when it was made cannot."""
    if not isinstance(given, torch.Tensor):
        return False
    alike = own.is_floating_point() == given.is_floating_point() and own.is_complex() == given.is_complex()
    return alike and (is_lazy(own) or own.shape == given.shape)


def _once(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Every element that has memory of its own, once; of an expanded dimension the first. Those of `like`, if given."""
    strides = (tensor if like is None else like).stride()
    return tensor[tuple(slice(1) if stride == 0 else slice(None) for stride in strides)] if 0 in strides else tensor


def _import_fault(error: BaseException, folder: Path, target: Target) -> KernelFault:
    doing = "importing the source"
    if isinstance(error, SyntaxError) and (error.text or "").lstrip().startswith("```"):
        doing += " (a line of ``` is Markdown's: send the code between them)"
    return fault(error, doing, folder, target, Status.COMPILE_ERROR)
