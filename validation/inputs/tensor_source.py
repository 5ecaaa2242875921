"""Draws one tensor argument of a contract for every input set. Callers copy the tensors and never write to them."""

from __future__ import annotations

import torch

from domain.contract import TensorSpec
from sandbox.protocol.arena import copyable
from validation.inputs.tensor_spec import allocate, is_random, make_group, make_tensor

PREDICTABLE = frozenset({"cpu"})
"""Devices whose random numbers can be predicted from earlier ones.

The CPU generator is a Mersenne Twister, which 624 words reveal. A kernel that sees the first sets of a group could
predict the later ones. A GPU uses Philox, whose key would have to be guessed.
"""

UNLIMITED = 1 << 62
"""Stands for "any number of sets": the content is the same in all sets or does not matter."""


class TensorSource:
    """Draws under the job's secret. `blank` marks an output whose content before a call means nothing; `of` draws the
    argument that `init.of` names.

    Random tensors are drawn `group` sets at a time on devices that cannot be predicted; those with strides are drawn
    one by one. Content that repeats is made once.
    """

    def __init__(
        self,
        spec: TensorSpec,
        device: str,
        secret: int | None,
        position: int,
        *,
        group: int,
        blank: bool,
        of: TensorSource | None = None,
    ) -> None:
        self._spec = spec
        self._device = device
        self._secret = secret
        self._position = position
        self._blank = blank
        self._of = of
        grouped = is_random(spec) and spec.strides is None and not blank
        self._group_size = group if grouped and torch.device(device).type not in PREDICTABLE else 1
        self._group: tuple[int, torch.Tensor] | None = None
        self._same: dict[bool, torch.Tensor] = {}
        self._repeats = not is_random(spec)

    @property
    def kind(self) -> str | None:
        return self._spec.init.kind if self._spec.init is not None else None

    def draw(self, set_number: int) -> torch.Tensor:
        """The tensor of one input set. Raises as `make_tensor` does."""
        if self._group_size > 1 and set_number > 0:
            number, position = divmod(set_number - 1, self._group_size)
            return self._drawn_group(number)[position]
        if not (self._blank or self._repeats):
            return self._make(set_number)
        # Alternate a NaN poison and a finite one: an element that the kernel leaves out then differs from any right
        # value once.
        finite = self._blank and set_number % 2 == 1
        if finite not in self._same:
            self._same[finite] = (
                allocate(self._spec, self._device, finite=finite) if self._blank else self._make(set_number)
            )
        return self._same[finite]

    def stackable(self, first: int) -> int:
        """How many sets, from `first` on, `stack` can return at once."""
        if self._blank or self._repeats:
            return UNLIMITED
        return self._group_size - (first - 1) % self._group_size if self._group_size > 1 and first > 0 else 1

    def stack(self, first: int, count: int) -> torch.Tensor:
        """The tensors of `count` sets from `first` on, [sets, ...]; `count` is at most `stackable(first)`. Raises as
        `draw` does."""
        if self._blank:
            one, other = self.draw(first), self.draw(first + 1)
            both = torch.stack([copyable(one), copyable(other)])
            return both.repeat(-(-count // 2), *[1] * (both.dim() - 1))[:count].view(one.dtype)
        if self._repeats:
            once = self.draw(first)
            return once.expand(count, *once.shape)
        number, position = divmod(first - 1, self._group_size)
        return self._drawn_group(number)[position : position + count]

    def _parts(self, first: int, count: int) -> torch.Tensor | None:
        """The lengths, [sets, n], in the argument that `init.of` names."""
        if self._of is None:
            return None
        drawn = self._of.stack(first, count) if count > 1 else self._of.draw(first)[None]
        return drawn.to(torch.int64).diff() if self._of.kind == "offsets" else drawn

    def _drawn_group(self, number: int) -> torch.Tensor:
        if self._group is None or self._group[0] != number:
            self._group = number, self._make_group(number)
        return self._group[1]

    def _make_group(self, number: int) -> torch.Tensor:
        return make_group(
            self._spec,
            device=self._device,
            seed=self._secret,
            position=self._position,
            group=number,
            size=self._group_size,
            parts=self._parts(1 + number * self._group_size, self._group_size),
        )

    def _make(self, set_number: int) -> torch.Tensor:
        return make_tensor(
            self._spec,
            device=self._device,
            seed=self._secret,
            position=self._position,
            fresh=set_number,
            parts=self._parts(set_number, 1),
        )
