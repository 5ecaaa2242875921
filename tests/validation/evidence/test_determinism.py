"""What the findings of several processes show together."""

import torch

from domain.determinism import Batch, BatchVerdict, Determinism, OutputRepeats
from domain.flags.codes import FlagCode
from tests.flag_codes import codes
from validation.evidence.determinism import fingerprint, merged


def test_a_fingerprint_tells_bits_apart() -> None:
    one = torch.randn(3, 70_001)
    other = one.clone()
    other[2, 5] = torch.nextafter(other[2, 5], torch.tensor(9.0))
    assert fingerprint(one, 7) == fingerprint(one.clone(), 7) != fingerprint(other, 7)
    assert fingerprint(torch.zeros(5), 7) != fingerprint(-torch.zeros(5), 7)
    assert fingerprint(one.flip(0), 7) != fingerprint(one, 7) != fingerprint(one, 8)


def test_processes_are_merged_by_their_fingerprints() -> None:
    def one(fingerprint: int, verdict: BatchVerdict) -> Determinism:
        return Determinism(1, [OutputRepeats(64, 0, 0.0, fingerprint)], Batch(verdict))

    both = merged([one(5, BatchVerdict.INVARIANT), one(6, BatchVerdict.VARIANT)])
    assert both.processes == 2 and both.outputs[0].calls == 128
    assert both.outputs[0].equal_across_processes is False and both.batch.verdict is BatchVerdict.VARIANT
    assert codes(both.flags) == [FlagCode.NOT_DETERMINISTIC, FlagCode.BATCH_VARIANT]
    assert "fingerprint" not in str(both.to_dict())
