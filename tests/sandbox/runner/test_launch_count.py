"""What is known of a call by the driver functions that it calls."""

import ctypes

import pytest

from sandbox.runner.launch_count import LaunchCount

DEFAULT, LEGACY = 0, 1


def launch_kernel(stream: int) -> ctypes.Array[ctypes.c_char]:
    """As `cuLaunchKernel_params` has it: the function, seven numbers, the stream."""
    laid_out = (7).to_bytes(8, "little") + bytes(28) + bytes(4) + stream.to_bytes(8, "little")
    return ctypes.create_string_buffer(laid_out, len(laid_out))


def noted(*calls: tuple[bytes, ctypes.Array[ctypes.c_char] | None]) -> LaunchCount:
    count = LaunchCount()
    for name, parameters in calls:
        count.note(name, ctypes.addressof(parameters) if parameters is not None else None)
    return count


def launch_ex(stream: int) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]:
    """As `cuLaunchKernelEx_params` has it: a pointer to seven numbers and the stream; that, and what it points to."""
    configuration = ctypes.create_string_buffer(bytes(32) + stream.to_bytes(8, "little"), 40)
    address = ctypes.addressof(configuration).to_bytes(8, "little")
    return ctypes.create_string_buffer(address, 8), configuration


def test_what_is_launched_is_counted() -> None:
    count = noted((b"cuLaunchKernel", launch_kernel(5)), (b"cuMemsetD8Async", None), (b"cuCtxGetCurrent", None))
    assert count.launches == 2
    assert not count.several_streams


@pytest.mark.parametrize(
    ("name", "streams", "several"),
    [
        (b"cuLaunchKernel", (5, 5), False),
        (b"cuLaunchKernel", (5, 6), True),
        (b"cuLaunchKernel_ptsz", (5, 6), True),
        (b"cuLaunchKernel", (DEFAULT, LEGACY), False),
        (b"cuLaunchKernel", (DEFAULT, 6), True),
        (b"cuLaunchCooperativeKernel", (5, 6), True),
        (b"cuMemcpyDtoDAsync_v2", (5, 6), False),
    ],
)
def test_launches_on_several_streams_are_told(name: bytes, streams: tuple[int, ...], several: bool) -> None:
    assert noted(*((name, launch_kernel(stream)) for stream in streams)).several_streams is several


def test_a_launch_by_configuration_has_its_stream_there() -> None:
    (first, kept), (other, kept_too) = launch_ex(5), launch_ex(6)
    assert not noted((b"cuLaunchKernelEx", first), (b"cuLaunchKernelEx", first)).several_streams
    assert noted((b"cuLaunchKernelEx", first), (b"cuLaunchKernelEx", other)).several_streams
    assert len(kept) == len(kept_too)


@pytest.mark.parametrize("name", [b"cuStreamWaitEvent", b"cuStreamWaitEvent_ptsz", b"cuGraphLaunch"])
def test_what_waits_for_another_stream_and_graphs_are_told(name: bytes) -> None:
    assert noted((name, None)).several_streams
