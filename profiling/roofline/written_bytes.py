"""Counts the bytes of its outputs that a call must have written, whatever shortcuts it takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

SAMPLED = 32
"""Number of output elements that are searched for in the inputs; floats cannot all occur there by chance."""

SEARCHED = 1 << 24
"""Number of elements compared or searched at a time: a mask of 16 MiB."""


def in_place_bytes(outputs: Sequence[torch.Tensor]) -> int:
    """The bytes of outputs that a call writes into poisoned slots: all of them count."""
    return sum(_distinct(tensor) * tensor.element_size() for tensor in outputs)


def returned_bytes(
    outputs: Sequence[torch.Tensor], of_another_call: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> int:
    """The bytes of returned outputs that must have been written, by the values of two calls with different inputs.

    `inputs` are the first call's tensors, with the weights if they are known. Elements that are equal in both calls may
    come from a constant that was made once. An output whose values all occur in one input may be a view of it. Neither
    counts.
    """
    counted = 0
    for one, other in zip(outputs, of_another_call, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or not one.numel():
            continue
        sides = _words(one).reshape(-1), _words(other).reshape(-1)
        changed, sample = _changed(*sides)
        if not changed or any(_occurs(sample, tensor) for tensor in inputs):
            continue
        share = changed / sides[0].numel()
        counted += int(share * _distinct(one) * one.element_size())
    return counted


def _changed(one: torch.Tensor, other: torch.Tensor) -> tuple[int, torch.Tensor]:
    """The number of words that differ, and SAMPLED of them, spread evenly, without the sign of a float."""
    pairs = list(zip(torch.split(one, SEARCHED), torch.split(other, SEARCHED), strict=True))
    counts = [int((a != b).view(torch.int8).sum(dtype=torch.int32)) for a, b in pairs]
    total = sum(counts)
    count = min(SAMPLED, total)
    # In integers: a float32 linspace rounds past the end of a tensor of 64 M elements.
    ranks = [number * (total - 1) // max(count - 1, 1) for number in range(count)]
    sample, before = [one[:0]], 0
    for (a, b), in_piece in zip(pairs, counts, strict=True):
        own = [rank - before for rank in ranks if before <= rank < before + in_piece]
        if own:  # An index takes eight bytes for each changed word, so only a piece's are held.
            sample.append(a[(a != b).nonzero().flatten()[own]])
        before += in_piece
    return total, _unsigned(torch.cat(sample))


def _occurs(sample: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a sample of the output's changed words all occur in `tensor`, without signs (a conjugate is a view)."""
    sample = sample.to(tensor.device)
    occurs = torch.zeros_like(sample, dtype=torch.bool)
    for piece in torch.split(_memory(tensor, sample.element_size()), SEARCHED):
        words = _unsigned(piece)
        for index in (~occurs).nonzero().flatten().tolist():
            occurs[index] = (words == sample[index]).any()
    return bool(occurs.all())


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as signed integers of their size; complex ones as two."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_SAME_SIZE[plain.element_size()])


def _memory(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """The elements in order, read as integers of `size` bytes."""
    # Flattening a strided tensor need not copy it, and then its bytes are not contiguous.
    octets = _words(tensor).reshape(-1).contiguous().view(torch.int8)
    return octets[: octets.numel() // size * size].view(_SAME_SIZE[size])


def _unsigned(words: torch.Tensor) -> torch.Tensor:
    """The words without the top bit, which is the sign of a float."""
    return words & torch.iinfo(words.dtype).max


def _distinct(tensor: torch.Tensor) -> int:
    """Number of elements with distinct memory: an expanded dimension counts once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or not size else 1
    return count
