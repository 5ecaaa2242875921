"""The loop that replies to the referee's messages."""

import socket
from collections.abc import Iterator
from threading import Thread

import pytest
import torch

from sandbox.protocol.channel import READY, Channel
from sandbox.runner.main import serve


@pytest.fixture
def referee(tmp_path) -> Iterator[Channel]:
    channel, its_end = map(Channel, socket.socketpair())
    runner = Thread(target=serve, args=(its_end, tmp_path))
    runner.start()
    assert channel.receive() == {"op": READY}
    yield channel
    channel.close()
    runner.join()
    its_end.close()


def test_each_reply_says_what_has_been_freed_since_the_last(referee, monkeypatch):
    reserved = [700, 100, 100, 100]  # Before and after each of two messages.
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved.pop(0))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    replies = []
    for message in ({"op": "free_cache"}, {"op": "order", "slots": []}, {"op": "free_cache"}):
        referee.send(message)
        replies.append(referee.receive())
    assert replies == [{"op": "ok", "freed": 600}, {"op": "ok"}, {"op": "ok"}]
    assert not reserved


def test_a_fault_says_it_too(referee, monkeypatch):
    reserved = [700, 100]
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved.pop(0))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    referee.send({"op": "shift_allocations", "bytes": "no number"})
    reply = referee.receive()
    assert (reply["op"], reply["freed"]) == ("fault", 600)
