"""The common base of all kernel types written in Python: imports the source, finds its entry, constructs and calls
it."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from backends.base import (
    ALONE,
    NO_REFERENCE,
    Artifact,
    Backend,
    ContractLaunch,
    Executable,
    ReferenceArguments,
    Target,
    Task,
)
from backends.binary.cuda_toolkit import ARCH_WITHOUT_DEVICE
from backends.dry_run.child import DryRun, World, dry_run
from backends.dry_run.example import Example, may_compile
from backends.dtypes import is_computed
from backends.extensions import jit_build
from backends.languages import registry
from backends.languages.language import Unfollowed
from backends.python.compiled_call import compiled, compiler_fault, graph_breaks
from backends.python.float64_mode import Float64Mode
from backends.python.gradients import call_with_gradients, find_gradients
from backends.source.argument_binding import (
    Passing,
    binds,
    borrowed_arguments,
    by_position,
    constructor_arguments,
    contract_arguments,
    fitting_arguments,
    input_maker,
    input_names,
    keyword_only,
    keywords,
    signature_of,
    value_names,
)
from backends.source.default_device import DefaultDevice, keeps_other_tensors
from backends.source.entry_point import Entry, resolve
from backends.source.error_report import asks_for_gpu, fault, gradient_hint, reached_source, summary
from backends.source.input_inference import GIVE_INPUTS, InputPlan, find_plan
from backends.source.module_loader import import_source
from backends.source.own_inputs import YIELD_ALL, OwnInputs
from backends.source.rng_state import drew_on_host, rng_snapshot, seed_everything
from domain.cases.case import CaseSource
from domain.fault import KernelFault
from domain.gradients import GradientPlan
from domain.inputs import DrawOn
from domain.kernel import Kernel
from domain.result import Status
from domain.value import Unserializable, leaves, replace

_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_NOT_OF_INPUTS = (NameError, ImportError, ModuleNotFoundError, SystemExit)
"""Errors that other inputs would not have avoided; UnboundLocalError, a NameError, is none of them."""
RETURN_ALL = "`return [...]`, a list with one entry for each parameter"
DRY_SEED = 0
"""The seed of a dry run, whose random numbers have no content."""


class PythonBackend(Backend):
    """A source in Python. It is executed unchanged, once in the builder and once in the runner."""

    def imported(self, kernel: Kernel, folder: Path) -> ModuleType:
        """The source as a module; a type whose sources are not Python makes one here."""
        return import_source(kernel.source_code, folder)

    def entry(self, module: ModuleType, kernel: Kernel) -> Entry:
        """The object to call; raises KernelFault (COMPILE_ERROR) when the source does not define it.

        A type whose functions take other arrays than torch tensors wraps the function and `module.get_inputs` here, as
        `tests/backends/python/test_base.py` does. `functools.wraps` keeps the signature, which binds the arguments.
        """
        return resolve(module, kernel)

    def facts(self, entry: Entry, kernel: Kernel, target: Target) -> dict[str, Any]:
        """Facts about the entry that a kernel type adds after the import, still in the builder."""
        return {}

    def build(self, kernel: Kernel, folder: Path, target: Target, task: Task = ALONE) -> Artifact:
        """Executes the source with no GPU visible, which compiles its extensions and reveals its errors.

        For a GPU, a dry run then compiles what constructor and call compile. A source that insists on a GPU is left to
        it, and deferred to the runner where the dry run cannot import it either.
        """
        extensions = _prepared(folder, target)
        registry.before_import(kernel.source_code)
        facts: dict[str, Any] = {}
        deferred = None
        try:
            module = self.imported(kernel, folder)
        except BaseException as error:
            if not (target.is_cuda and (asks_for_gpu(error) or registry.may_lack_the_gpu(error))):
                raise _import_fault(error, kernel, folder, target) from error
            deferred = f"the source needs a GPU while it is imported ({summary(error)})"
        else:
            entry = self.entry(module, kernel)
            extensions.require_device()
            facts = {"entry": entry.label, **self.facts(entry, kernel, target)}
            if kernel.under_compile and not target.is_cuda:
                _compile_ahead(PythonExecutable(module, entry, kernel, folder, target, NO_REFERENCE, DRY_SEED))
        built = list(extensions.built)
        example = None
        may_compile_more = may_compile(kernel) and not facts.get("compiled_ahead")
        if target.is_cuda and (may_compile_more or kernel.is_reference):
            before = extensions.files()
            run = self._dry_run(kernel, folder, target, extensions, task)
            if run.fault is not None:
                raise run.fault
            built += [path.stem for key, path in extensions.files().items() if key not in before]
            if may_compile_more:
                facts["dry_run"] = run.facts
            if deferred is not None and run.entry is not None:
                facts["entry"], deferred = run.entry, None
            example = run.example
        versions = registry.versions(kernel.source_code)
        facts |= {"extensions": built, "headers": extensions.headers} | ({"languages": versions} if versions else {})
        if extensions.kernels:
            facts["kernels"] = extensions.kernels
        return Artifact(facts, deferred, extensions.log, example)

    def _dry_run(
        self, kernel: Kernel, folder: Path, target: Target, extensions: jit_build.Extensions, task: Task
    ) -> DryRun:
        """Imports, constructs and calls the source as the runner will, on fake tensors."""

        def follow(world: World) -> None:
            drawn_example = Example.from_wire(task.example)
            if drawn_example.unknown and kernel.io is None:
                world.note_uncertain("the reference's inputs are unknown")
            with world.enter(target.arch or ARCH_WITHOUT_DEVICE, kernel.source_code):
                doing = "importing the source"
                try:
                    module = self.imported(kernel, folder)
                    entry = self.entry(module, kernel)
                    world.tell(entry=entry.label)
                    doing = f"constructing {entry.label}"
                    executable = PythonExecutable(
                        module, entry, kernel, folder, target, drawn_example.borrowed, DRY_SEED
                    )
                except Exception as error:
                    raise fault(error, doing, folder, target) from error
                args = drawn_example.arguments(kernel, executable)
                if kernel.is_reference:
                    world.tell(example=Example.wire(kernel, executable, args))
                if args is None:
                    raise Unfollowed("no inputs are known")
                if may_compile(kernel):
                    executable.call(args)
                    if task.gradients:
                        # The run asks for the gradients that the reference has, which are not known here.
                        world.note_uncertain("the backward may need other gradients")
                        executable.differentiable(args)

        return dry_run(extensions, task, follow)

    def load(
        self, kernel: Kernel, folder: Path, target: Target, artifact: Artifact, borrowed: ReferenceArguments, seed: int
    ) -> Executable:
        """Executes the source again, where its extensions are already built, and constructs its class under the
        seed."""
        extensions = _prepared(folder, target)
        registry.before_import(kernel.source_code)
        try:
            module = self.imported(kernel, folder)
        except BaseException as error:
            raise _import_fault(error, kernel, folder, target) from error
        entry = self.entry(module, kernel)
        try:
            executable = PythonExecutable(module, entry, kernel, folder, target, borrowed, seed)
        except (Exception, SystemExit) as error:
            doing = f"constructing {entry.label}"
            own = input_maker("get_init_inputs", [module, entry.target])
            if isinstance(error, TypeError) and own is None and not reached_source(error):
                why = _why_unusable(borrowed.init)
                doing += f" (the source has no get_init_inputs() to give its arguments, and {why})"
            raise fault(error, doing, folder, target) from error
        extensions.require_device()
        executable.compiled, executable.not_built = extensions.compiled, extensions.not_built
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
        borrowed: ReferenceArguments,
        seed: int,
    ) -> None:
        self.entry = entry.label
        self._folder = folder
        self._target = target
        self._borrowed = borrowed
        self._init: list[Any] | None = None
        self._init_names: list[str] = []
        self._inputs_device = DefaultDevice(target)
        self._plan: InputPlan | None = None
        self._instance: Any = None
        self._marked: list[bool] = []
        self._found_in: torch.nn.Module | None = None
        self._found: dict[str, torch.nn.Parameter] = {}
        self._callable: Callable[..., Any] = entry.target
        if entry.method is not None:
            constructor_device = DefaultDevice(target)
            self._instance = constructor_device.run(
                lambda: self._constructed(module, entry, borrowed, seed),
                # `torch.Tensor(8)` is on the host whatever the default, and so are the numbers drawn into it. The
                # reference's layers would draw the same numbers there alone.
                suits=lambda instance: not (drew_on_host() or keeps_other_tensors(instance)),
                is_final=self._is_compile_error,
            )
            self.constructed_on = constructor_device.used
            # Call the instance itself for forward, so that hooks and torch.compile's wrapper run.
            through_call = isinstance(self._instance, torch.nn.Module) and entry.method == "forward"
            self._callable = self._instance if through_call else getattr(self._instance, entry.method)
        self._under_compile = kernel.under_compile
        if kernel.under_compile:
            self._callable = compiled(self._callable)
        self._restore_rng = rng_snapshot()
        self._signature = signature_of(getattr(self._instance, entry.method) if entry.method else entry.target)
        holders = [holder for holder in (module, self._instance, entry.target) if holder is not None]
        self._own = OwnInputs(holders, kernel)
        self._passing = Passing(None, keywords(self._signature))
        if kernel.io is not None:
            self._passing = contract_arguments(self._signature, kernel.io)
        self._input_names = input_names(self._signature, kernel.io)
        self._borrows_arguments = kernel.io is None and (bool(borrowed.input_names) or not self._own.makes_inputs)

    def _constructed(self, module: ModuleType, entry: Entry, borrowed: ReferenceArguments, seed: int) -> Any:
        """An instance from the reference's constructor arguments, else from the source's own, else without.

        The reference's are the task's. A candidate often repeats them, with the sizes of another variant. But a source
        that gives another number of its own has another constructor.
        """
        arguments = fitting_arguments(entry.target, dataclasses.replace(borrowed, init=self._on_device(borrowed.init)))
        maker = input_maker("get_init_inputs", [module, entry.target])
        if maker is not None:
            seed_everything(seed)
            self._init = self._values("get_init_inputs", maker())
            own = constructor_arguments(entry.target, self._init)
            if arguments is None or sum(map(len, own)) != sum(map(len, arguments)):
                arguments, self._init_names = own, value_names(signature_of(entry.target))[: len(own[0])]
        seed_everything(seed)
        positional, named = arguments or ([], {})
        instance = entry.target(*positional, **named)
        return instance.to(self._target.device) if isinstance(instance, torch.nn.Module) else instance

    def _is_compile_error(self, error: Exception) -> bool:
        """Whether a compiler refused the source: it would do so on the host too, after the same time."""
        return fault(error, "", self._folder, self._target).status is Status.COMPILE_ERROR

    def use_case(self, kernel: Kernel) -> None:
        self._own.case = kernel.case
        if isinstance(self._callable, ContractLaunch) and kernel.io is not None:
            self._callable.follow(kernel.io)

    @property
    def case_source(self) -> CaseSource:
        return self._own.case_source

    @property
    def has_inputs(self) -> bool:
        return self._own.makes_inputs

    def cases(self) -> list[dict[str, Any]] | None:
        try:
            return self._own.cases(self._drawn)
        except Exception as error:
            raise fault(error, f"calling {self.case_source}()", self._folder, self._target) from error

    def _drawn(self, make: Callable[[], Any]) -> Any:
        """The result of `make`, which draws on the device if it can."""
        return self._inputs_device.run(
            make, is_final=lambda error: isinstance(error, KernelFault) or self._is_compile_error(error)
        )

    def resume(self) -> None:
        self._restore_rng()

    def call(self, args: list[Any]) -> Any:
        plan = GradientPlan.of(args)
        try:
            if plan is not None:
                return call_with_gradients(plan, args, self._forward, self._parameters(plan.parameters))
            with torch.no_grad():
                return self._forward(args)
        except Exception as error:
            doing = f"calling {self.entry}{gradient_hint(error) if plan is None else ''}"
            own = compiler_fault(error) if self._under_compile else None
            raise own or fault(error, doing, self._folder, self._target) from error

    def differentiable(self, args: list[Any]) -> dict[str, Any]:
        try:
            return find_gradients(args, self._forward, self._module, self._marked)
        except Exception as error:
            raise fault(error, f"differentiating {self.entry}", self._folder, self._target) from error

    def _forward(self, args: list[Any]) -> Any:
        if self._borrows_arguments:
            self._passing, self._borrows_arguments = borrowed_arguments(self._signature, args, self._borrowed), False
        passing = self._passing
        values = args if passing.indexes is None else [args[index] for index in passing.indexes]
        if not passing.names:
            return self._callable(*values)
        end = max(len(values) - len(passing.names), 0)
        return self._callable(*values[:end], **dict(zip(passing.names, values[end:], strict=False)))

    @property
    def graph_breaks(self) -> int | None:
        return graph_breaks() if self._under_compile else None

    @property
    def _module(self) -> torch.nn.Module | None:
        module = self._callable if isinstance(self._callable, torch.nn.Module) else self._instance
        return module if isinstance(module, torch.nn.Module) else None

    def _parameters(self, names: tuple[str, ...]) -> list[torch.nn.Parameter]:
        """The parameters of those names; found once, because a call would take as long as the search."""
        module = self._module
        if self._found_in is not module or self._found.keys() != set(names):
            self._found_in = module
            self._found = {name: module.get_parameter(name) for name in names} if module is not None else {}
        return list(self._found.values())

    def call_double(self, args: list[Any], *, rounds: bool = False) -> Any:
        doubled = replace(args, torch.Tensor, lambda tensor: tensor.double() if is_computed(tensor) else tensor)
        single = self._callable
        if single is self._instance:
            model: Any = copy.deepcopy(single)
            self._callable = model.double()
        try:
            with Float64Mode(rounds=rounds):
                return self.call(doubled)
        finally:
            self._callable = single

    def arguments(self) -> ReferenceArguments:
        return ReferenceArguments(self._init, self._init_names, self._input_names)

    def own_inputs(self, seed: int) -> list[Any] | None:
        if not self._own.makes_inputs:
            return None
        try:
            made: list[Any] = self._drawn(lambda: self._values("get_inputs", *self._own.draw(seed)))
            self._marked = [tensor.requires_grad for tensor in leaves(made, torch.Tensor)]
            self.drawn_on = self._inputs_device.used
            return made
        except Exception as error:
            raise fault(error, "calling get_inputs()", self._folder, self._target) from error

    def inferred_inputs(self, seed: int) -> tuple[list[Any], str] | None:
        try:
            if self._plan is None:
                self._plan = find_plan(
                    self._first_call, self._signature, self._instance, self._target, seed, self.entry
                )
            self.drawn_on = DrawOn.DEVICE if self._target.is_cuda else DrawOn.HOST
            return self._plan.draw(seed, self._target), f"inputs were inferred: {self._plan.described()}"
        except (Exception, SystemExit) as error:
            doing = f"calling {self.entry} with guessed inputs{gradient_hint(error)}"
            cause = fault(error, doing, self._folder, self._target)
            if cause is error or cause.status is not Status.RUNTIME_ERROR or type(error) in _NOT_OF_INPUTS:
                raise cause from error
            message = f"{cause.message}. If the inputs are at fault, {GIVE_INPUTS}"
            raise KernelFault(cause.status, message, cause.log, compiled=cause.compiled) from error

    def _first_call(self, *args: Any) -> Any:
        self._restore_rng()
        return self._forward(list(args))

    def state(self) -> dict[str, Any]:
        own = self._weights()
        # A lazy module has none yet: its first call draws them, with the generators as its constructor left them.
        return {} if any(is_lazy(value) for value in own.values()) else own

    def parameters(self) -> list[str]:
        if not isinstance(self._instance, torch.nn.Module):
            return []
        return [name for name, _ in self._instance.named_parameters(remove_duplicate=False)]

    def load_state(self, state: dict[str, Any]) -> bool:
        own = self._weights()
        # A lazy layer with only some of its tensors can neither make the others nor be called.
        incomplete = any(is_lazy(value) and name not in state for name, value in own.items())
        if incomplete or not all(name in own and _takes(own[name], source) for name, source in state.items()):
            return False
        with torch.no_grad():
            for name, source in state.items():
                value = own[name]
                if is_lazy(value):
                    value.materialize(source.shape)
                _once(value).copy_(_once(source, like=value))
        return True

    def _weights(self) -> dict[str, Any]:
        """The module's own tensors by name, lazy ones included."""
        if not isinstance(self._instance, torch.nn.Module):
            return {}
        # Without keep_vars a lazy parameter would be a copy, and the module's own would stay as it is.
        state = self._instance.state_dict(keep_vars=True)
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def _values(self, name: str, result: Any, yielded: bool = False) -> list[Any]:
        """A list of arguments on the target, of the result of the source's function of that name."""
        if result is None:
            problem = f"yielded None; {YIELD_ALL}" if yielded else "returned None; end it with `return [...]`"
            raise KernelFault(Status.RUNTIME_ERROR, f"{name}() {problem}", compiled=True)
        if isinstance(result, Iterator | Set):
            kind = "a generator" if isinstance(result, GeneratorType) else f"a {type(result).__name__}"
            problem = f"yielded {kind}; {YIELD_ALL}" if yielded else f"returned {kind}; end it with {RETURN_ALL}"
            raise KernelFault(Status.RUNTIME_ERROR, f"{name}() {problem}", compiled=True)
        if name == "get_inputs" and isinstance(result, dict):
            # A dict holds arguments by name; if these do not fit, it is itself the one argument.
            named = by_position(self._signature, result)
            if named is None and (only := keyword_only(self._signature, result)):
                message = f"{self.entry} takes {', '.join(only)} by keyword alone: leave out the `*` before it"
                raise KernelFault(Status.RUNTIME_ERROR, message, compiled=True)
            result = [result] if named is None else named
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        if yielded and not binds(self._signature, len(items)):
            message = f"get_inputs() yielded a set of {len(items)}, and {self.entry} cannot be called with so many"
            raise KernelFault(Status.RUNTIME_ERROR, f"{message}: {YIELD_ALL}", compiled=True)
        return list(self._on_device(items))

    def _on_device(self, value: Any) -> Any:
        return replace(value, torch.Tensor, lambda tensor: tensor.to(self._target.device))


def _compile_ahead(executable: PythonExecutable) -> None:
    """Has Inductor store what it compiles in the folder; it compiles for a GPU only where it sees one."""
    if (inputs := executable.own_inputs(DRY_SEED)) is not None:
        executable.call(inputs)


def _prepared(folder: Path, target: Target) -> jit_build.Extensions:
    """Runs before the source is imported, because the source binds the names that it imports."""
    if not target.is_cuda:
        # A local import: the module relies on the interpreter's private names, which no GPU kernel should depend on.
        from backends.interpreter.patches import install

        install()
    return jit_build.install(folder, target)


def _why_unusable(init: list[Any] | None) -> str:
    """Why the reference's constructor arguments could not be used either."""
    if init is None:
        return "none of a reference's came"
    unserializable = ", ".join(item.words for item in leaves(init, Unserializable))
    if unserializable:
        return f"of the reference's some cannot cross to another process ({unserializable}): define it here too"
    return f"the reference's {len(init)} do not fit"


def _takes(own: torch.Tensor, value: Any) -> bool:
    """Whether `value` can be copied into `own`. A tensor that its constructor quantised to integers takes no float."""
    if not isinstance(value, torch.Tensor):
        return False
    same_kind = own.is_floating_point() == value.is_floating_point() and own.is_complex() == value.is_complex()
    return same_kind and (is_lazy(own) or own.shape == value.shape)


def _once(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """The elements of a tensor without the repetitions of expanded dimensions; with `like`, without those of `like`."""
    strides = (tensor if like is None else like).stride()
    return tensor[tuple(slice(1) if stride == 0 else slice(None) for stride in strides)] if 0 in strides else tensor


def _import_fault(error: BaseException, kernel: Kernel, folder: Path, target: Target) -> KernelFault:
    doing = "importing the source"
    # An error in the first line is of the prose before the code.
    if isinstance(error, SyntaxError) and _FENCE.search(kernel.source_code if error.lineno == 1 else error.text or ""):
        doing += " (a line of ``` is Markdown's: send the code between them)"
    return fault(error, doing, folder, target, Status.COMPILE_ERROR)
