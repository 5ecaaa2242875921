"""What torch.cuda says of a GPU that is not there, and what of that is noted as a guess."""

from __future__ import annotations

import pytest

from tests.backends.dry_run.in_process import told_by

ASKED = """
from backends.dry_run.pretended_cuda import pretend_cuda
guesses = []
pretend_cuda(ARCH, guesses.append)
properties = torch.cuda.get_device_properties(0)
tell(known=[torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device()])
tell(capability=list(torch.cuda.get_device_capability()), same=[properties.major, properties.minor])
tell(shared=properties.shared_memory_per_block_optin, threads=properties.max_threads_per_multi_processor)
stream, begin, end = torch.cuda.Stream(priority=-1), torch.cuda.Event(enable_timing=True), torch.cuda.Event()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.device(0), torch.cuda.stream(stream):
    begin.record(stream)
    stream.wait_event(stream.record_event(end))
end.synchronize()
torch.cuda.synchronize()
unnoted = properties.unnoted()
tell(unnoted=[unnoted.major, unnoted.minor, unnoted.multi_processor_count > 1])
tell(certain=list(guesses), instance=isinstance(torch.cuda.device(0), torch.cuda.device))
names = [properties.name, torch.cuda.get_device_name()]
tell(names=names, many=properties.multi_processor_count > 1, ms=begin.elapsed_time(end))
tell(free=min(torch.cuda.mem_get_info()) > 0, guesses=sorted(set(guesses)))
try:
    properties.unknown
except AttributeError:
    tell(unknown=True)
"""


@pytest.mark.parametrize(("arch", "capability", "shared"), [("sm_90", [9, 0], 232_448), ("sm_86", [8, 6], 101_376)])
def test_a_card_of_the_architecture(arch: str, capability: list[int], shared: int) -> None:
    told = told_by(f"ARCH = {arch!r}{ASKED}")
    assert told["known"] == [True, 1, 0]
    assert told["capability"] == told["same"] == capability and told["shared"] == shared
    assert told["certain"] == [] and told["instance"] and told["unnoted"] == [*capability, True]
    assert told["guesses"] == [
        "a time on the card",
        *(f"the card's {name}" for name in ("multi_processor_count", "name", "total_memory")),
    ]
    assert told["names"][0] == told["names"][1] and told["many"] and told["ms"] > 0 and told["free"] and told["unknown"]
