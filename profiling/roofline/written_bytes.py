"""How many bytes of its outputs a call must have written, whatever shortcuts it takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

SAMPLED = 32
"""Elements of an output that are looked for among the inputs; all found by chance is out of the question for floats."""

SEARCHED = 1 << 24
"""Elements searched at a time: a mask of 16 MiB."""


def in_place_bytes(outputs: Sequence[torch.Tensor]) -> int:
    """Of outputs that the call writes into poisoned slots: all of them."""
    return sum(_distinct(tensor) * tensor.element_size() for tensor in outputs)


def returned_bytes(
    outputs: Sequence[torch.Tensor], of_another_call: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> int:
    """Of outputs that the call returned, by the values of two calls with different inputs.

    `inputs` are the first call's tensors, and the weights where they are known. Elements equal in both calls may come
    from a constant made once, and an output whose values all occur in one input may be a view of it: neither need be
    written, so neither counts.
    """
    counted = 0
    for one, other in zip(outputs, of_another_call, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or not one.numel():
            continue
        words = _words(one).reshape(-1)
        changed = (words != _words(other).reshape(-1)).nonzero().flatten()
        if not len(changed) or any(_occurs(words, changed, given) for given in inputs):
            continue
        share = len(changed) / words.numel()
        counted += int(share * _distinct(one) * one.element_size())
    return counted


def _occurs(words: torch.Tensor, changed: torch.Tensor, given: torch.Tensor) -> bool:
    """Whether a spread of the output's changed words all occur in that input, signs aside (a conjugate is a view)."""
    # In integers: a float32 linspace rounds past the end of a tensor of 64 M elements.
    count = min(SAMPLED, len(changed))
    spread = torch.arange(count, device=changed.device) * (len(changed) - 1) // max(count - 1, 1)
    wanted = _unsigned(words[changed[spread]]).to(given.device)
    found = torch.zeros_like(wanted, dtype=torch.bool)
    for piece in torch.split(_unsigned(_memory(given, words.element_size())), SEARCHED):
        for index in (~found).nonzero().flatten().tolist():
            found[index] = (piece == wanted[index]).any()
    return bool(found.all())


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as signed integers of their size; complex ones as two."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_SAME_SIZE[plain.element_size()])


def _memory(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """The elements one behind the other, read as integers of `size` bytes, whatever they are."""
    # A strided tensor may be flattened without a copy, and then its bytes are not side by side.
    octets = _words(tensor).reshape(-1).contiguous().view(torch.int8)
    return octets[: octets.numel() // size * size].view(_SAME_SIZE[size])


def _unsigned(words: torch.Tensor) -> torch.Tensor:
    """Without the top bit, where floats have their sign."""
    return words & torch.iinfo(words.dtype).max


def _distinct(tensor: torch.Tensor) -> int:
    """Elements that have a place of their own in memory: an expanded dimension has one for all."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or not size else 1
    return count
