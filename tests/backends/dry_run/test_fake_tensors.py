"""Fake tensors of the device `cuda` in a process without CUDA."""

from __future__ import annotations

from tests.backends.dry_run.in_process import told_by

OPERATIONS = """
from backends.dry_run.fake_tensors import fake_world
failures = []
with fake_world(lambda error: failures.append(type(error).__name__)):
    with torch.device("cuda:0"):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(6, 2)).to("cuda:0")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).cuda().half()
    x = torch.zeros(8, 4).cuda()
    everything = (*model.state_dict().values(), x, x.to("cuda"), x.cpu().to("cuda"))
    tell(devices=sorted({str(value.device) for value in everything}))
    tell(dtypes=str(next(model.parameters()).dtype), shape=list(model(x.half()).shape))
    tell(addresses=[x.data_ptr() % 16, x.view(-1)[1:].data_ptr() % 16], certain=not failures)
    tell(numbers=[x.sum().item(), int(x.argmax()), bool((x > 0).any()), torch.allclose(x, x)])
    tell(failures=sorted(set(failures)))
"""


def test_a_model_is_made_moved_and_called() -> None:
    told = told_by(OPERATIONS)
    assert told["devices"] == ["cuda:0"]
    assert (told["dtypes"], told["shape"]) == ("torch.float16", [8, 4])
    assert told["addresses"] == [0, 4] and told["certain"], (
        "aligned as an allocation is, and views as their offset says"
    )
    assert told["numbers"] == [1.0, 16, True, True]
    assert told["failures"] == ["DataDependentOutputException"]
