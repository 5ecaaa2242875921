"""One tensor argument of a contract in every input set. Nobody writes to it, but to copies of it."""

from __future__ import annotations

import torch

from domain.contract import TensorSpec
from validation.inputs.tensor_spec import allocate, is_random, make_group, make_tensor

FORETOLD = frozenset({"cpu"})
"""Devices whose generator's next numbers follow from those that have been seen.

There torch has a Mersenne Twister, known from 624 of its words: of a group's sets a kernel would see the first in one
window and know those of the next ones ahead of their guns. On a GPU the key of a Philox would have to be guessed.
"""

EVERY = 1 << 62
"""Of what is the same in all sets, or means nothing in any."""


class FreshTensor:
    """Under the job's secret. `blank`: an output whose content before a call means nothing.

    Random ones are drawn `group` sets at a time where no set tells the next, those with strides of their own one by
    one; what is the same in many sets is made once.
    """

    def __init__(
        self, spec: TensorSpec, device: str, secret: int | None, position: int, *, group: int, blank: bool
    ) -> None:
        self._spec = spec
        self._device = device
        self._secret = secret
        self._position = position
        self._blank = blank
        together = is_random(spec) and spec.strides is None and not blank
        self._group_size = group if together and torch.device(device).type not in FORETOLD else 1
        self._group: tuple[int, torch.Tensor] | None = None
        self._same: dict[bool, torch.Tensor] = {}
        self._repeats = not is_random(spec)

    def of(self, fresh: int) -> torch.Tensor:
        """That of the set of that number. Raises as `make_tensor`."""
        if self._group_size > 1 and fresh > 0:
            number, place = divmod(fresh - 1, self._group_size)
            return self._drawn_group(number)[place]
        if not (self._blank or self._repeats):
            return self._made(fresh)
        # Poisoned by a NaN and by a finite number in turn: whatever is right, an element left out shows.
        finite = self._blank and fresh % 2 == 1
        if finite not in self._same:
            self._same[finite] = allocate(self._spec, self._device, finite=finite) if self._blank else self._made(fresh)
        return self._same[finite]

    def together(self, first: int) -> int:
        """How many sets from that number on `stack` can give at once."""
        if self._blank or self._repeats:
            return EVERY
        return self._group_size - (first - 1) % self._group_size if self._group_size > 1 and first > 0 else 1

    def stack(self, first: int, count: int) -> torch.Tensor:
        """Those of so many sets from that number on, as many as are `together` there: [sets, ...]. Raises as `of`."""
        if self._blank:
            both = torch.stack([self.of(first), self.of(first + 1)])
            return both.repeat(-(-count // 2), *[1] * (both.dim() - 1))[:count]
        if self._repeats:
            once = self.of(first)
            return once.expand(count, *once.shape)
        number, place = divmod(first - 1, self._group_size)
        return self._drawn_group(number)[place : place + count]

    def _drawn_group(self, number: int) -> torch.Tensor:
        if self._group is None or self._group[0] != number:
            self._group = number, self._made_group(number)
        return self._group[1]

    def _made_group(self, number: int) -> torch.Tensor:
        return make_group(
            self._spec,
            device=self._device,
            seed=self._secret,
            position=self._position,
            group=number,
            size=self._group_size,
        )

    def _made(self, fresh: int) -> torch.Tensor:
        return make_tensor(self._spec, device=self._device, seed=self._secret, position=self._position, fresh=fresh)
