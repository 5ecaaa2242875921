"""Puts the determinism findings of all processes of a job together, and says what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from domain.determinism import Batch, BatchVerdict, Determinism, OutputRepeats
from domain.flags.codes import FlagCode
from domain.flags.flag import Flag
from validation.compare.bitwise import bits, blocks
from validation.seeds import derive_seed

PIECE = 1 << 20
"""Elements that are summed with one set of multipliers."""
ODD = 0x9E3779B97F4A7C15
WORST_FIRST = (BatchVerdict.VARIANT, BatchVerdict.INVARIANT, BatchVerdict.UNTESTED)
"""One process is enough to show that rows depend on their batch, or to have tried it."""


def merged(findings: Sequence[Determinism]) -> Determinism:
    """The findings of several processes as one: an output repeats if it does in each, with the same bits."""
    first = findings[0]
    if len(findings) > 1 and all(len(one.outputs) == len(first.outputs) for one in findings):
        outputs = [_merged_output(same) for same in zip(*(one.outputs for one in findings), strict=True)]
        batch = min((one.batch for one in findings), key=lambda batch: WORST_FIRST.index(batch.verdict))
        untested = next((one.untested for one in findings if one.untested is not None), None)
        first = Determinism(len(findings), outputs, batch, untested)
    return replace(first, flags=_flags(first))


def fingerprint(tensor: torch.Tensor, seed: int) -> int:
    """A 64-bit number made of a tensor's bits; tensors with other bits have another one, but for one in 2^63.

    Each element is multiplied by a random odd number of the seed; sums wrap around.
    """
    generator = torch.Generator(device=tensor.device).manual_seed(derive_seed(seed, "fingerprint"))
    multipliers = torch.randint(-(2**62), 2**62, (PIECE,), generator=generator, device=tensor.device) | 1
    total = 0
    for (piece,) in blocks([bits(tensor)], PIECE):
        words = piece.reshape(-1).to(torch.int64)
        total = (total * ODD + int((words * multipliers[: words.numel()]).sum())) % 2**64
    return total


def _merged_output(same: Sequence[OutputRepeats]) -> OutputRepeats:
    differences = [one.max_abs_diff for one in same if one.max_abs_diff is not None]
    return OutputRepeats(
        calls=sum(one.calls for one in same),
        differing_calls=sum(one.differing_calls for one in same),
        max_abs_diff=max(differences, default=None),
        fingerprint=same[0].fingerprint,
        equal_across_processes=len({one.fingerprint for one in same}) == 1,
    )


def _flags(found: Determinism) -> list[Flag]:
    flags = [_not_repeated(index, output) for index, output in enumerate(found.outputs) if not output.repeats]
    if found.untested is not None:
        flags.append(Flag(FlagCode.DETERMINISM_UNTESTED, f"determinism was not tested: {found.untested}"))
    if found.batch.verdict is BatchVerdict.VARIANT:
        flags.append(_variant(found.batch))
    return flags


def _not_repeated(index: int, output: OutputRepeats) -> Flag:
    if output.differing_calls:
        message = (
            f"output {index} had other bits in {output.differing_calls} of {output.calls} calls on the same inputs"
        )
    else:
        message = f"output {index} had the same bits in all calls of a process, and other bits in another process"
    data = {"output": index, "calls": output.calls, "differing_calls": output.differing_calls}
    return Flag(FlagCode.NOT_DETERMINISTIC, message, data)


def _variant(batch: Batch) -> Flag:
    message = (
        f"{batch.differing_rows} of {batch.rows} rows have other bits beside other rows or in a batch of another size"
    )
    return Flag(FlagCode.BATCH_VARIANT, message, {"rows": batch.rows, "differing_rows": batch.differing_rows})
