"""Where the tensors of a window's calls lie: one slot a call, all inputs first, all outputs behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from domain import value as values
from domain.dtype import ITEM_BYTES
from domain.value import TensorRef
from sandbox.protocol.arena import aligned, copy_all, describe, stored_shape, view, write

GUARD = 256
"""Bytes at least behind every tensor that belong to none.

Behind inputs they are poison, so that a load past the end shows in the answer; behind outputs random, so that a store
past the end shows, be it of what was loaded past an input's end.
"""
POISON = 0xFF
"""Fills output slots before every window: NaN in every float type, so that an element left unwritten shows."""


class Slots:
    """The layout of K calls in an arena, and the private image that it is filled from.

    `example` is one call's arguments; `output_arguments` the indexes of those that carry the answer (none when the
    call returns it, in which case `returned` are tensors like the returned ones). `blank` are the indexes of those
    whose content before a call means nothing: they keep the first set's.
    """

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
        """What the runner's random generators start from in a window over this layout."""
        self._output_arguments = frozenset(output_arguments)
        self._blank = frozenset(blank)
        self._written: set[int] = set()
        self._places: list[list[tuple[torch.Tensor, ...]]] | None = None
        self._end = 0
        args = [a if i in self._output_arguments else self._place(a) for i, a in enumerate(example)]
        self._input_stride = self._end
        self._end = self.inputs_end = calls * self._input_stride
        for index in output_arguments:
            args[index] = self._place(args[index])
        self.args: list[Any] = args
        """Of the first call, as are `outputs`: the other calls' lie as far from it as `_moved` says."""
        self.outputs: list[TensorRef] = (
            [self._place(tensor) for tensor in returned] if returned else [args[i] for i in output_arguments]
        )
        self._output_stride = self._end - self.inputs_end
        self.size = self.inputs_end + calls * self._output_stride
        self.image = torch.full((self.size,), POISON, dtype=torch.uint8, device=device)
        for guard in self._guards(self.image[self.inputs_end :]):
            guard.random_(0, 256)

    @property
    def output_bytes(self) -> int:
        return self.size - self.inputs_end

    @property
    def handed_in(self) -> tuple[int, bool, int, tuple[TensorRef, ...]]:
        """What a null window over this layout depends on: equal layouts cost the same when nothing is computed."""
        places = tuple(ref.at(ref.offset - self.inputs_end) for ref in self.outputs)
        return self.calls, self.returned, self.size, places

    def fill(self, first: int, sets: Sequence[list[Any]]) -> None:
        """Writes the arguments of calls from that number on into the private image: one set of them for each.

        Inputs, and the initial content of output arguments. In as few launches as there are kinds of tensors: one for
        each tensor of each call costs the device more than the windows themselves.
        """
        self.filled = True
        if self._places is None:
            self._places = [self._stored(argument) for argument in self.args]
        for index, places in enumerate(self._places):
            again = self._written if index in self._blank else frozenset()
            calls = [call for call in range(first, first + len(sets)) if call not in again]
            given = [values.leaves(sets[call - first][index], torch.Tensor) for call in calls]
            for each_call, contents in zip(places, zip(*given, strict=True), strict=bool(given)):
                targets = [each_call[call] for call in calls]
                copy_all(targets, [_of_shape(tensor, target) for tensor, target in zip(contents, targets, strict=True)])
        self._written.update(range(first, first + len(sets)))

    def fill_stacked(self, first: int, count: int, stack: Callable[[int], torch.Tensor]) -> None:
        """The same of so many calls, by the argument: what `stack` gives for its index is that of all, [calls, ...].

        For arguments that are tensors or hold none. Blank ones that have been written are not asked for.
        """
        self.filled = True
        calls = range(first, first + count)
        for index, argument in enumerate(self.args):
            written = index in self._blank and self._written.issuperset(calls)
            if isinstance(argument, TensorRef) and not written:
                places = view(self.image, argument.times(self.calls, self._stride(argument)))
                write(places[first : first + count], stack(index))
        self._written.update(calls)

    def takes_as(self, other: Slots) -> bool:
        """Whether both have the same inputs at the same places, and nothing else that is still to be filled in."""
        blank = self._output_arguments <= self._blank and other._output_arguments <= other._blank
        pure = blank and (not self._output_arguments or len(self._written) == self.calls)
        return pure and self.calls == other.calls and self.args == other.args

    def fill_as(self, other: Slots) -> None:
        """The inputs of all calls as they were filled into that layout, which `takes_as` this one."""
        self.filled = True
        self.image[: self.inputs_end].copy_(other.image[: self.inputs_end])

    def noise(self) -> torch.Tensor:
        """As many random bytes as the inputs have: each 0 or 1, which every type holds."""
        words = torch.empty(self.inputs_end // 8, dtype=torch.int64, device=self.image.device)
        return words.random_().bitwise_and_(0x0101010101010101).view(torch.uint8)

    def wipe(self, memory: torch.Tensor, noise: torch.Tensor | None = None) -> None:
        """Overwrites all calls' inputs in an arena, with poison if with nothing else; outputs begin anew."""
        if noise is None:
            memory[: self.inputs_end].fill_(POISON)
        else:
            memory[: self.inputs_end].copy_(noise)
        memory[self.inputs_end : self.size].copy_(self.image[self.inputs_end :])

    def lies_at(self, number: int, form: TensorRef, memory: torch.Tensor) -> torch.Tensor | None:
        """What lies there in the memory of each call's tensor of that number, [calls, ...]; None where none can."""
        refs = values.leaves(self.args, TensorRef)
        if number >= len(refs) or form.offset + form.span > refs[number].span or form.offset % ITEM_BYTES[form.dtype]:
            return None
        first = form.at(refs[number].offset + form.offset)
        return view(memory, first.times(self.calls, self._stride(first)))

    def fill_alike(self, args: list[Any]) -> None:
        """Writes the same arguments into every call's slot."""
        self.fill(0, [args])
        for begin, end in ((0, self.inputs_end), (self.inputs_end, self.size)):
            if end > begin:
                calls = self.image[begin:end].view(self.calls, -1)
                calls[1:] = calls[0]

    def arguments(self, call: int, memory: torch.Tensor | None = None) -> list[Any]:
        """One call's arguments as they were filled in: views of the private image, or of what lies in an arena now."""
        source = self.image if memory is None else memory
        views: list[Any] = values.replace(self._moved(self.args, call), TensorRef, lambda ref: view(source, ref))
        return views

    def wire(self) -> dict[str, Any]:
        """The calls as the runner is told them: the first, and how far the next ones are from it."""
        return self._grouped([(self.args, self.outputs if self.returned else [], self.calls)])

    def null_wire(self) -> dict[str, Any]:
        """The same calls for the null kernel: outputs of the same sizes to hand in, one launch in all."""
        answers = self.outputs if self.returned else []
        others: list[TensorRef] = self._moved(answers, 1)
        return self._grouped([([True, *answers], answers, 1), ([False, *others], others, self.calls - 1)])

    def _grouped(self, groups: list[tuple[list[Any], list[TensorRef], int]]) -> dict[str, Any]:
        """Groups of calls that lie one after the other: the first one's arguments and answers, how many they are."""
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
        """Each call's outputs out of a private snapshot of the output region."""
        stacks = self.read_stacked(snapshot)
        return [[stack[call] for stack in stacks] for call in range(self.calls)]

    def read_stacked(self, snapshot: torch.Tensor) -> list[torch.Tensor]:
        """Each output of all calls, which lie equally far from each other, as one view, [calls, *shape]."""
        refs = [ref.at(ref.offset - self.inputs_end).times(self.calls, self._output_stride) for ref in self.outputs]
        return [view(snapshot, ref) for ref in refs]

    def stacked_arguments(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Each of the arguments' tensors, of all calls as one view, of what lies in an arena now."""
        refs = values.leaves(self.args, TensorRef)
        return [view(memory, ref.times(self.calls, self._stride(ref))) for ref in refs]

    def _moved(self, value: Any, call: int) -> Any:
        """Where a call has what the first one has there."""
        return values.replace(value, TensorRef, lambda ref: ref.at(ref.offset + call * self._stride(ref)))

    def _stride(self, ref: TensorRef) -> int:
        """Bytes from one call's to the next one's."""
        return self._input_stride if ref.offset < self.inputs_end else self._output_stride

    def _stored(self, argument: Any) -> list[tuple[torch.Tensor, ...]]:
        """In the image, every call's place of each of that argument's tensors: of a repeated element there is one."""
        refs = [ref.times(self.calls, self._stride(ref)) for ref in values.leaves(argument, TensorRef)]
        each_calls = [view(self.image, ref) for ref in refs]
        return [calls.as_strided(stored_shape(calls), calls.stride()).unbind() for calls in each_calls]

    def _place(self, value: Any) -> Any:
        return values.replace(value, torch.Tensor, self._reserve)

    def overrun(self, snapshot: torch.Tensor) -> bool:
        """Whether a snapshot's guards, the bytes between outputs, were written."""
        drawn = self._guards(self.image[self.inputs_end :])
        return any(not torch.equal(*pair) for pair in zip(self._guards(snapshot), drawn, strict=True))

    def _guards(self, outputs: torch.Tensor) -> list[torch.Tensor]:
        """What lies behind each output of a call in that copy of the output region, for all calls at once."""
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


def _of_shape(tensor: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that its place has memory for."""
    return tensor if tensor.shape == place.shape else tensor[tuple(map(slice, place.shape))]


def bytes_per_call(example: list[Any], returned: list[torch.Tensor]) -> int:
    """What one call's slot takes."""
    tensors = [*values.leaves(example, torch.Tensor), *returned]
    return sum(aligned(describe(tensor).span + GUARD) for tensor in tensors)
