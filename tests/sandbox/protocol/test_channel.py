"""Messages over a socket pair, from a peer that keeps to no rule."""

import os
import socket
import struct
import threading

import pytest

from sandbox.protocol.channel import MAX_FRAME, MAX_PARTS, Channel, ChannelClosed, ProtocolError, finite_numbers


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_messages_and_descriptors_arrive_in_order(pair):
    channel, theirs = pair
    other = Channel(theirs, takes_descriptors=True)
    read, write = os.pipe()
    channel.send({"op": "one", "text": "é\x00"}, (read,))
    channel.send({"op": "two"})
    assert other.receive() == {"op": "one", "text": "é\x00"}
    os.write(write, b"x")
    descriptor = other.descriptor()
    assert os.read(descriptor, 1) == b"x"
    assert other.receive() == {"op": "two"}
    with pytest.raises(ProtocolError):
        other.descriptor()
    for opened in (read, write, descriptor):
        os.close(opened)


def test_a_frame_may_come_in_pieces(pair):
    channel, theirs = pair
    frame = struct.pack("!I", 12) + b'{"op":"done"}'[:12]
    theirs.sendall(frame[:3])
    assert channel.poll() is None
    theirs.sendall(struct.pack("!I", 13)[3:] + b'{"op":"done"}')
    assert channel.receive() == {"op": "done"}


class RecordedReads(socket.socket):
    """Notes the flags of each read."""

    reads: list[int]

    def recvmsg(self, size, ancillary=0, flags=0, /):
        self.reads.append(flags)
        return super().recvmsg(size, ancillary, flags)


def test_receive_blocks_in_the_socket_only_after_its_awake_time():
    ours, theirs = socket.socketpair()
    recorded = RecordedReads(fileno=ours.detach())
    recorded.reads = reads = []
    channel = Channel(recorded)
    assert channel.poll(awake=True) is None  # Where nothing has come a read would block.
    Channel(theirs).send({"op": "go"})
    assert channel.receive(awake_s=60.0) == {"op": "go"}
    for awake_s, how in ((60.0, socket.MSG_DONTWAIT), (0.0, 0)):
        reads.clear()
        Channel(theirs).send({"op": "next"})
        assert channel.receive(awake_s) == {"op": "next"}
        assert set(reads) == {how}
    channel.close()
    theirs.close()


@pytest.mark.parametrize("payload", [b"not json", b"[1]", b'{"no":"op"}', b'{"op":1}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_message_is_refused(pair, payload):
    channel, theirs = pair
    theirs.sendall(struct.pack("!I", len(payload)) + payload)
    with pytest.raises(ProtocolError):
        channel.receive()


def test_a_frame_over_the_cap_is_refused_before_it_is_read(pair):
    channel, theirs = pair
    theirs.sendall(struct.pack("!I", MAX_FRAME + 1))
    with pytest.raises(ProtocolError, match="cap"):
        channel.receive()


def test_a_message_of_too_many_parts_is_refused_before_they_are_made():
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    for parts in (b"[]," * MAX_PARTS, b'"x",' * MAX_PARTS, b'"x":{},' * MAX_PARTS):
        payload = b'{"op":"times","call_ms":[' + parts + b"0]}"
        told = threading.Thread(target=theirs.sendall, args=(struct.pack("!I", len(payload)) + payload,))
        told.start()
        with pytest.raises(ProtocolError, match="parts"):
            channel.receive()
        told.join()
    channel.close()
    theirs.close()


@pytest.mark.parametrize("text", ["[],{}" * 500_000, '"' * 2_000_000, "\\" * 2_000_000, '\n",[' * 600_000])
def test_what_stands_in_a_text_is_no_part(text):
    ours, theirs = socket.socketpair()
    channel, other = Channel(ours), Channel(theirs)
    told = threading.Thread(target=other.send, args=({"op": "built", "log": text},))
    told.start()
    assert channel.receive() == {"op": "built", "log": text}
    told.join()
    channel.close()
    other.close()


def test_a_closed_peer_is_noticed_by_reader_and_writer(pair):
    channel, theirs = pair
    theirs.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    with pytest.raises(ChannelClosed):
        channel.send({"op": "x", "pad": "y" * 1_000_000})


def test_a_peer_that_hangs_up_with_the_whole_message_has_it():
    ours, theirs = socket.socketpair()

    class HeardOut(socket.socket):
        def sendmsg(self, *args):
            sent = super().sendmsg(*args)
            assert len(theirs.recv(1 << 16)) == sent
            theirs.close()
            return sent

    channel = Channel(HeardOut(fileno=ours.detach()))
    channel.send({"op": "last"})
    with pytest.raises(ChannelClosed):
        channel.send({"op": "one more"})
    channel.close()


def test_descriptors_that_nobody_asked_for_are_not_taken(pair):
    channel, theirs = pair
    before = len(os.listdir("/proc/self/fd"))
    payload = struct.pack("!I", 13) + b'{"op":"done"}'
    for position in range(len(payload)):
        read, write = os.pipe()
        socket.send_fds(theirs, [payload[position : position + 1]], [read, write])
        os.close(read)
        os.close(write)
    assert channel.receive() == {"op": "done"}
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ProtocolError):
        channel.descriptor()


@pytest.mark.parametrize(
    ("wire", "numbers"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([True, None, "3", [4], float("nan"), float("inf"), 10**400, -(10**400), 1e300], []),
        (7, []),
        (None, []),
        ({"a": 1}, []),
    ],
)
def test_only_finite_numbers_of_a_list_count(wire, numbers):
    assert finite_numbers(wire) == numbers
