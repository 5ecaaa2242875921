"""Physics calls only what cannot be impossible."""

import json

import pytest
import torch

from domain.flags.codes import FlagCode
from profiling.gpu.measured_peaks import UNKNOWN, Ceilings, ceilings
from profiling.roofline.limits import arithmetic_floor_ms, impossible, memory_floor_ms, too_few_operations
from profiling.roofline.written_bytes import in_place_bytes, returned_bytes

H200 = Ceilings(4.3e12, 5.6e12, 60 << 20, {"bfloat16": 780e12, "tf32": 400e12, "float32": 50e12})
GIB = 1 << 30


def test_bytes_beyond_the_cache_go_at_the_memorys_rate():
    assert memory_floor_ms(4.3e12, H200) == pytest.approx(1000, rel=1e-3)


def test_a_window_that_fits_the_cache_is_charged_the_caches_rate_only():
    assert memory_floor_ms(1e6, H200, calls=4) == pytest.approx(1e6 / 5.6e12 * 1e3)


def test_many_small_calls_that_together_overflow_the_cache_pay_for_the_memory():
    each = memory_floor_ms(1 << 20, H200, calls=4000)
    assert each == pytest.approx((1 << 20) * (1 - 60 / 4000) / 4.3e12 * 1e3)
    assert each > memory_floor_ms(1 << 20, H200, calls=1)


def test_arithmetic_counts_at_the_rates_that_its_dtype_may_reach():
    assert arithmetic_floor_ms({"float32": 400e12}, H200) == pytest.approx(1000)  # in tf32, for all that is known
    assert arithmetic_floor_ms({"float16": 780e12, "float32": 40e12}, H200) == pytest.approx(1100)
    assert arithmetic_floor_ms({}, H200) == 0.0


@pytest.mark.parametrize(
    "dtype", ["float64", "float8_e4m3fn", "complex64", "int8", "unknown", "of the runner's making"]
)
def test_arithmetic_of_an_unknown_rate_is_granted_the_cards_best(dtype):
    assert arithmetic_floor_ms({dtype: 780e12}, H200) == pytest.approx(1000)


def test_where_nothing_is_known_nothing_is_impossible():
    assert arithmetic_floor_ms({"float32": 1e18}, UNKNOWN) == 0.0
    assert impossible(0.0, 1e18, UNKNOWN) is None
    assert too_few_operations(0.0, {"float32": 1e18}, UNKNOWN, whose="its own") is None


def test_a_time_under_the_floor_is_told_with_its_numbers():
    told = impossible(0.01, GIB, H200)
    assert told is not None and told.code is FlagCode.TOO_FAST_FOR_MEMORY
    for part in ("10 µs", "1.07e+03 MB", "4.3 TB/s in its memory"):
        assert part in told.message
    assert told.data["written_bytes"] == GIB and told.data["call_ms"] == 0.01


def test_the_datasheets_best_is_not_impossible():
    bytes_ = 4 * GIB
    assert impossible(bytes_ / 4.8e12 * 1e3, bytes_, H200) is None  # an H200's peak, above what a copy reaches
    assert impossible(memory_floor_ms(bytes_, H200), bytes_, H200) is None


def test_the_measurements_resolution_is_granted():
    floor = memory_floor_ms(1 << 20, H200, calls=10)
    assert impossible(0.0, 1 << 20, H200, calls=10) is not None
    assert impossible(0.0, 1 << 20, H200, calls=10, resolution_ms=floor) is None


def test_a_call_that_writes_nothing_may_take_no_time():
    assert impossible(0.0, 0, H200) is None


PRODUCT = {"bfloat16": 2 * 8192.0**3}


def test_a_time_without_room_for_an_eighth_of_the_operations_is_told_with_its_numbers():
    told = too_few_operations(0.1, PRODUCT, H200, whose="the reference's")
    assert told is not None
    for part in ("100 µs", "the reference's 1.1e+03 GFLOP", "bfloat16", "780 TFLOP/s", "1.41 ms", "141 µs"):
        assert part in told.message


@pytest.mark.parametrize("saved", [1, 4, 8, 10])
def test_an_algorithm_with_fewer_operations_is_granted(saved):
    """The whole, Winograd's quarter, Winograd's in a narrower dtype, and the headroom that a rate is granted."""
    assert too_few_operations(arithmetic_floor_ms(PRODUCT, H200) / saved, PRODUCT, H200, whose="its own") is None


def test_the_resolution_is_granted_to_operations_too():
    assert too_few_operations(0.0, PRODUCT, H200, whose="its own", resolution_ms=0.01) is not None
    assert too_few_operations(0.0, PRODUCT, H200, whose="its own", resolution_ms=0.05) is None
    assert too_few_operations(0.0, {}, H200, whose="its own") is None


def test_in_place_outputs_count_in_full_and_an_expanded_one_once():
    assert in_place_bytes([torch.empty(4, 8), torch.empty(3, dtype=torch.bfloat16)]) == 128 + 6
    assert in_place_bytes([torch.empty(1, 8).expand(100, 8)]) == 32
    assert in_place_bytes([torch.empty(0, 8), torch.empty(())]) == 4


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_computed_outputs_count():
    x, y = drawn(64, 64), drawn(64, 64, seed=1)
    assert returned_bytes([x.exp(), x.sum(0)], [y.exp(), y.sum(0)], [x]) == 64 * 64 * 4 + 64 * 4
    assert returned_bytes([torch.cat([x, x * 2])], [torch.cat([y, y * 2])], [x]) == 2 * 64 * 64 * 4


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[3:, ::2],
        lambda x: x.view(torch.int32),
        lambda x: x.view(torch.uint8),
        lambda x: x.view(32, 128).T.contiguous(),
        lambda x: torch.view_as_complex(x.view(64, 32, 2)).conj(),
        lambda x: x[5, 7],
        lambda x: x[:1].expand(64, 64),
    ],
)
def test_what_may_be_a_view_of_an_input_does_not_count(view):
    x, y = drawn(64, 64), drawn(64, 64, seed=1)
    assert returned_bytes([view(x)], [view(y)], [drawn(9, seed=3), x]) == 0


def test_parts_that_do_not_depend_on_the_input_do_not_count():
    x, y = drawn(64, 64), drawn(64, 64, seed=1)
    assert returned_bytes([torch.ones(9)], [torch.ones(9)], [x]) == 0
    assert returned_bytes([(x * 2).tril()], [(y * 2).tril()], [x]) == 65 * 32 * 4


def test_outputs_of_changing_shape_or_no_elements_do_not_count():
    x = drawn(8)
    assert returned_bytes([x * 2, x[:0]], [x[:3] * 2, x[:0]], [x]) == 0


def test_ceilings_are_measured_once_for_card_and_driver(tmp_path):
    measured: list[int] = []

    def measure() -> Ceilings:
        measured.append(1)
        return H200

    for _ in range(2):
        assert ceilings(tmp_path / "new", "GPU-1", "580.1", measure) == H200
    assert len(measured) == 1
    ceilings(tmp_path / "new", "GPU-1", "581.0", measure)
    ceilings(tmp_path / "new", "GPU-2", "580.1", measure)
    assert len(measured) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"memory_bytes_per_s": -1, "l2_bytes_per_s": None, "l2_bytes": 1, "flops": {}}),
        json.dumps({"memory_bytes_per_s": 1, "l2_bytes_per_s": None, "l2_bytes": 1, "flops": {"float32": "fast"}}),
    ],
)
def test_a_file_that_is_no_record_is_replaced(tmp_path, text):
    ceilings(tmp_path, "GPU-1", "580.1", lambda: H200)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    other = Ceilings(1.0, None, 5, {"float32": 2.0})
    assert ceilings(tmp_path, "GPU-1", "580.1", lambda: other) == other
    assert ceilings(tmp_path, "GPU-1", "580.1", lambda: H200) == other


def test_a_folder_that_cannot_be_written_costs_only_the_measurement(tmp_path):
    (tmp_path / "file").write_text("")
    assert ceilings(tmp_path / "file", "GPU-1", "580.1", lambda: H200) == H200


@pytest.mark.parametrize("measured", [UNKNOWN, Ceilings(1.0, 1.0, 5, {}), Ceilings(None, 1.0, 5, {"float32": 2.0})])
def test_what_could_not_be_measured_is_not_kept(tmp_path, measured):
    assert ceilings(tmp_path, "GPU-1", "580.1", lambda: measured) == measured
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
def test_a_cards_ceilings_are_plausible_and_the_card_is_left_as_it_was():
    import time

    from profiling.gpu.peak_probe import measure

    torch.ones(1, device="cuda")
    mode = torch.backends.cuda.matmul.fp32_precision
    free, _ = torch.cuda.mem_get_info()
    started = time.perf_counter()
    found = measure("cuda:0")
    print(f"{time.perf_counter() - started:.2f} s; {(free - torch.cuda.mem_get_info()[0]) >> 20} MiB kept; {found}")
    assert torch.backends.cuda.matmul.fp32_precision == mode
    assert found.memory_bytes_per_s and found.memory_bytes_per_s > 1e11
    assert found.l2_bytes_per_s and found.l2_bytes_per_s >= found.memory_bytes_per_s
    assert found.flops["bfloat16"] > found.flops["tf32"] > found.flops["float32"] > 1e12
    if torch.cuda.get_device_capability() >= (8, 9):
        assert found.flops["float8_e4m3fn"] > found.flops["bfloat16"]
    again = measure("cuda:0")
    assert again.memory_bytes_per_s == pytest.approx(found.memory_bytes_per_s, rel=0.1)
    assert again.l2_bytes_per_s == pytest.approx(found.l2_bytes_per_s, rel=0.25)


@pytest.mark.gpu
def test_no_honest_kernel_is_impossible():
    """Fills and copies, the fastest honest writers, from within the cache to far beyond it."""
    from profiling.gpu.peak_probe import measure

    found = measure("cuda:0")
    for size in (1 << 16, 1 << 20, 8 << 20, 64 << 20, 512 << 20):
        calls = min(max((256 << 20) // size, 1), 400)
        slots = torch.empty(calls, size, dtype=torch.uint8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        slots.fill_(1)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for slot in slots:
                slot.fill_(2)
        graph.replay()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        each = start.elapsed_time(end) / calls
        floor = memory_floor_ms(size, found, calls=calls)
        print(f"{size} bytes, {calls} calls: {each * 1e3:.2f} µs, floor {floor * 1e3:.2f} µs")
        assert impossible(each, size, found, calls=calls) is None
        assert size < 1 << 20 or impossible(each / 20, size, found, calls=calls) is not None
        del slots, graph
