"""The memory layout of a window's calls: one slot for each call, first all inputs, then all outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch

from domain import value as values
from domain.dtype import ITEM_BYTES
from domain.value import TensorRef
from sandbox.protocol.arena import aligned, comparable, copy_all, describe, stored_shape, view, write

GUARD = 256
"""Minimum number of guard bytes after every tensor.

After inputs they are poison, so that a load past the end shows in the output. After outputs they are random, so that a
store past the end shows, even of bytes that were loaded past the end of an input.
"""
POISON = 0xFF
"""Byte that fills output slots before every window: NaN in every float type, so that an unwritten element shows."""
LARGE_OUTPUTS = 1 << 28
"""Bytes of returned outputs from which on the image has none, because poison needs no copy to come from."""
PIECE = 1 << 26
"""Bytes that are compared with poison at a time."""


class Slots:
    """The layout of K calls in an arena, and the referee's private image of its contents.

    `example` holds one call's arguments, `output_arguments` the indexes of those that the call writes outputs to. If
    the call returns its outputs instead, `returned` holds tensors like them. `blank` are the indexes of arguments whose
    content before a call has no meaning: they are filled only once."""

    def __init__(
        self,
        calls: int,
        example: list[Any],
        output_arguments: tuple[int, ...],
        returned: list[torch.Tensor],
        device: str,
        *,
        blank: tuple[int, ...] = (),
    ) -> None:
        self.calls = calls
        self.returned = bool(returned)
        self.filled = False
        self.seed = 0
        """Seed of the runner's random generators in a window over this layout."""
        self._output_arguments = frozenset(output_arguments)
        self._blank = frozenset(blank)
        self._written: set[int] = set()
        self._views: list[list[tuple[torch.Tensor, ...]]] | None = None
        self._end = 0
        args = [a if i in self._output_arguments else self._allocate(a) for i, a in enumerate(example)]
        self._input_stride = self._end
        self._end = self.inputs_end = calls * self._input_stride
        for index in output_arguments:
            args[index] = self._allocate(args[index])
        self.args: list[Any] = args
        """The first call's arguments. `_moved` gives those of other calls, and of `outputs` as well."""
        self.outputs: list[TensorRef] = (
            [self._allocate(tensor) for tensor in returned] if returned else [args[i] for i in output_arguments]
        )
        self._output_stride = self._end - self.inputs_end
        self.size = self.inputs_end + calls * self._output_stride
        self._device = device

    @cached_property
    def image(self) -> torch.Tensor:
        """The contents of all calls in the referee's private memory, allocated at first use; of inputs alone if outputs
        are large."""
        end = self.inputs_end if self._is_without_outputs else self.size
        image = torch.full((end,), POISON, dtype=torch.uint8, device=self._device)
        if not self._is_without_outputs:
            for guard in self._guards(image[self.inputs_end :]):
                guard.random_(0, 256)
        return image

    @property
    def _is_without_outputs(self) -> bool:
        return self.returned and self.output_bytes >= LARGE_OUTPUTS

    @cached_property
    def _drawn_guards(self) -> list[torch.Tensor]:
        """The random bytes after each output, for all calls: [calls, bytes]."""
        if not self._is_without_outputs:
            return self._guards(self.image[self.inputs_end :])
        forms = self._guards(torch.empty(self.output_bytes, dtype=torch.uint8, device="meta"))
        return [torch.randint(256, form.shape, dtype=torch.uint8, device=self._device) for form in forms]

    @property
    def output_bytes(self) -> int:
        return self.size - self.inputs_end

    @property
    def handed_in(self) -> tuple[int, bool, int, tuple[TensorRef, ...]]:
        """Everything that a null window's time over this layout depends on, to compare two layouts."""
        outputs = tuple(ref.at(ref.offset - self.inputs_end) for ref in self.outputs)
        return self.calls, self.returned, self.size, outputs

    def fill(self, first: int, sets: Sequence[list[Any]]) -> None:
        """Writes the arguments of the calls from number `first` on into the private image, one set for each call.

        It writes inputs and the initial content of output arguments, with one launch for each kind of tensor: a launch
        for each tensor of each call would take the device longer than the windows themselves.
        """
        self.filled = True
        if self._views is None:
            self._views = [self._image_views(argument) for argument in self.args]
        for index, views in enumerate(self._views):
            written = self._written if index in self._blank else frozenset()
            calls = [call for call in range(first, first + len(sets)) if call not in written]
            tensors = [values.leaves(sets[call - first][index], torch.Tensor) for call in calls]
            for calls_views, contents in zip(views, zip(*tensors, strict=True), strict=bool(tensors)):
                targets = [calls_views[call] for call in calls]
                copy_all(targets, [_of_shape(tensor, target) for tensor, target in zip(contents, targets, strict=True)])
        self._written.update(range(first, first + len(sets)))

    def fill_stacked(self, first: int, count: int, stack: Callable[[int], torch.Tensor]) -> None:
        """Like `fill` for `count` calls at once: `stack(index)` returns that argument of all calls, [calls, ...].

        Each argument is a tensor or holds none. `stack` is not called for blank arguments that were written before.
        """
        self.filled = True
        calls = range(first, first + count)
        for index, argument in enumerate(self.args):
            written = index in self._blank and self._written.issuperset(calls)
            if isinstance(argument, TensorRef) and not written:
                target = view(self.image, argument.times(self.calls, self._stride(argument)))
                write(target[first : first + count], stack(index))
        self._written.update(calls)

    def can_copy_from(self, other: Slots) -> bool:
        """Whether both layouts have the same inputs at the same offsets, so that `copy_from` fills this one
        completely."""
        blank = self._output_arguments <= self._blank and other._output_arguments <= other._blank
        pure = blank and (not self._output_arguments or len(self._written) == self.calls)
        return pure and self.calls == other.calls and self.args == other.args

    def equals(self, other: Slots) -> bool:
        """Whether both layouts have the same inputs and outputs at the same offsets, all outputs returned."""
        return self.returned and other.returned and self.args == other.args and self.outputs == other.outputs

    def copy_from(self, other: Slots) -> None:
        """Copies the inputs of all calls from another layout for which `can_copy_from` is True."""
        self.filled = True
        self.image[: self.inputs_end].copy_(other.image[: self.inputs_end])

    def noise(self) -> torch.Tensor:
        """Random bytes, as many as the inputs have; each is 0 or 1, which is valid in every dtype."""
        words = torch.empty(self.inputs_end // 8, dtype=torch.int64, device=self.image.device)
        return words.random_().bitwise_and_(0x0101010101010101).view(torch.uint8)

    def clear(self, memory: torch.Tensor, noise: torch.Tensor | None = None) -> None:
        """Overwrites all calls' inputs in an arena with `noise`, or else with poison, and resets their outputs."""
        if noise is None:
            memory[: self.inputs_end].fill_(POISON)
        else:
            memory[: self.inputs_end].copy_(noise)
        memory[self.inputs_end : self.image.numel()].copy_(self.image[self.inputs_end :])
        self.poison_outputs(memory)

    def poison_outputs(self, memory: torch.Tensor) -> None:
        """Resets large outputs, which the image leaves out, in an arena; on a GPU by kernels, not by a copy engine."""
        if self._is_without_outputs:
            outputs = memory[self.inputs_end : self.size]
            outputs.view(torch.int64).fill_(-1)
            for guard, drawn in zip(self._guards(outputs), self._drawn_guards, strict=True):
                torch.bitwise_or(drawn, 0, out=guard)

    def is_reset(self, snapshot: torch.Tensor) -> bool:
        """Whether a snapshot of the output region has what it had before the calls."""
        if not self._is_without_outputs:
            return torch.equal(snapshot.view(torch.int64), self.image[self.inputs_end :].view(torch.int64))
        calls = snapshot.view(self.calls, -1)
        starts = [ref.offset - self.inputs_end for ref in self.outputs]
        outputs = [calls[:, start : start + ref.span] for start, ref in zip(starts, self.outputs, strict=True)]
        pieces = (piece for output in outputs for call in output for piece in call.split(PIECE))
        return not self.overrun(snapshot) and all(bool((piece == POISON).all()) for piece in pieces)

    def view_at(self, number: int, form: TensorRef, memory: torch.Tensor) -> torch.Tensor | None:
        """A view of `memory` for all calls, [calls, ...]: `form` within the argument tensor of that number.

        None if there is no such tensor, or if `form` does not fit into it.
        """
        refs = values.leaves(self.args, TensorRef)
        if number >= len(refs) or form.offset + form.span > refs[number].span or form.offset % ITEM_BYTES[form.dtype]:
            return None
        first = form.at(refs[number].offset + form.offset)
        return view(memory, first.times(self.calls, self._stride(first)))

    def broadcast(self, args: list[Any]) -> None:
        """Writes the same arguments into the slot of every call."""
        self.fill(0, [args])
        for begin, end in ((0, self.inputs_end), (self.inputs_end, self.image.numel())):
            if end > begin:
                calls = self.image[begin:end].view(self.calls, -1)
                calls[1:] = calls[0]

    def arguments(self, call: int, memory: torch.Tensor | None = None) -> list[Any]:
        """One call's arguments as views of the private image, or of `memory` (an arena)."""
        source = self.image if memory is None else memory
        views: list[Any] = values.replace(self._moved(self.args, call), TensorRef, lambda ref: view(source, ref))
        return views

    def wire(self) -> dict[str, Any]:
        """The calls as the referee sends them to the runner: the first one, and the distance between calls."""
        return self._grouped([(self.args, self.outputs if self.returned else [], self.calls)])

    def null_wire(self) -> dict[str, Any]:
        """The same calls for the null kernel: outputs of the same sizes to hand in, but only one launch for all."""
        outputs = self.outputs if self.returned else []
        others: list[TensorRef] = self._moved(outputs, 1)
        return self._grouped([([True, *outputs], outputs, 1), ([False, *others], others, self.calls - 1)])

    def _grouped(self, groups: list[tuple[list[Any], list[TensorRef], int]]) -> dict[str, Any]:
        """The message for groups of consecutive calls: the first call's arguments and outputs, and the calls'
        number."""
        return {
            "groups": [
                {"count": count, "args": values.encode(args), "outputs": values.encode(outputs)}
                for args, outputs, count in groups
                if count
            ],
            "inputs_end": self.inputs_end,
            "input_stride": self._input_stride,
            "output_stride": self._output_stride,
        }

    def read(self, snapshot: torch.Tensor) -> list[list[torch.Tensor]]:
        """Each call's outputs in a private snapshot of the output region."""
        stacks = self.read_stacked(snapshot)
        return [[stack[call] for stack in stacks] for call in range(self.calls)]

    def read_stacked(self, snapshot: torch.Tensor) -> list[torch.Tensor]:
        """Each output of all calls, [calls, *shape], as `comparable` gives it."""
        return list(map(comparable, self.output_views(snapshot)))

    def output_views(self, snapshot: torch.Tensor) -> list[torch.Tensor]:
        """Each output of all calls as one view, [calls, *shape]."""
        refs = [ref.at(ref.offset - self.inputs_end).times(self.calls, self._output_stride) for ref in self.outputs]
        return [view(snapshot, ref) for ref in refs]

    def stacked_inputs(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Each tensor of all calls' inputs in `memory` (an arena), as `read_stacked` gives outputs."""
        refs = [ref for ref in values.leaves(self.args, TensorRef) if ref.offset < self.inputs_end]
        return [comparable(view(memory, ref.times(self.calls, self._stride(ref)))) for ref in refs]

    def _moved(self, value: Any, call: int) -> Any:
        """`value` of the first call, with its offsets moved to those of `call`."""
        return values.replace(value, TensorRef, lambda ref: ref.at(ref.offset + call * self._stride(ref)))

    def _stride(self, ref: TensorRef) -> int:
        """Distance between two calls' tensors, in bytes."""
        return self._input_stride if ref.offset < self.inputs_end else self._output_stride

    def _image_views(self, argument: Any) -> list[tuple[torch.Tensor, ...]]:
        """For each tensor of an argument, its view in the image for every call; repeated elements occur once."""
        refs = [ref.times(self.calls, self._stride(ref)) for ref in values.leaves(argument, TensorRef)]
        stacks = [view(self.image, ref) for ref in refs]
        return [calls.as_strided(stored_shape(calls), calls.stride()).unbind() for calls in stacks]

    def _allocate(self, value: Any) -> Any:
        return values.replace(value, torch.Tensor, self._reserve)

    def overrun(self, snapshot: torch.Tensor) -> bool:
        """Whether the guard bytes between the outputs of a snapshot were written."""
        return any(not torch.equal(*pair) for pair in zip(self._guards(snapshot), self._drawn_guards, strict=True))

    def _guards(self, outputs: torch.Tensor) -> list[torch.Tensor]:
        """The guard bytes after each output, for all calls at once, in a copy of the output region."""
        if not self.outputs:
            return []
        stride = self._output_stride
        calls = outputs[: stride * self.calls].view(self.calls, stride)
        ends = [ref.offset + ref.span - self.inputs_end for ref in self.outputs]
        starts = [ref.offset - self.inputs_end for ref in self.outputs[1:]]
        return [calls[:, end:start] for end, start in zip(ends, [*starts, stride], strict=True)]

    def _reserve(self, tensor: torch.Tensor) -> TensorRef:
        ref = describe(tensor, self._end)
        self._end = aligned(self._end + ref.span + GUARD)
        return ref


def _of_shape(tensor: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that fits the target, which has repeated elements only once."""
    return tensor if tensor.shape == target.shape else tensor[tuple(map(slice, target.shape))]


def bytes_per_call(example: list[Any], returned: list[torch.Tensor]) -> int:
    """The size of one call's slot, in bytes."""
    tensors = [*values.leaves(example, torch.Tensor), *returned]
    return sum(aligned(describe(tensor).span + GUARD) for tensor in tensors)
