"""Which arenas are evicted, and what becomes of a runner that does not give up its own."""

from __future__ import annotations

from domain.fault import KernelFault
from domain.result import Status
from sandbox.supervisor.arena_eviction import ArenaEviction

ARENA = 10


class Memory:
    """A device with room for `room` arenas."""

    def __init__(self, room: int) -> None:
        self.free = room * ARENA
        self.eviction = ArenaEviction(lambda new_bytes: self.free >= new_bytes)


class Holder:
    """A session with an arena from its first use on; a stubborn one does not give it up by itself."""

    def __init__(self, memory: Memory, *, stubborn: bool = False) -> None:
        self.memory = memory
        self.stubborn = stubborn
        self.has_arena = self.stopped = False

    def use(self) -> None:
        self.memory.eviction.make_room(self, 0 if self.has_arena else ARENA)
        if not self.has_arena:
            self.memory.free -= ARENA
            self.has_arena = True

    def detach(self) -> None:
        if self.stubborn:
            raise KernelFault(Status.TIMEOUT, "no reply")
        self.release()

    def stop(self) -> None:
        self.stopped = True

    def release(self) -> None:
        self.memory.free += ARENA * self.has_arena
        self.has_arena = False


def test_arenas_stay_while_there_is_room() -> None:
    memory = Memory(room=2)
    one, other = Holder(memory), Holder(memory)
    for holder in (one, other, one, other):
        holder.use()
    assert one.has_arena and other.has_arena


def test_the_arena_that_was_used_longest_ago_goes_first() -> None:
    memory = Memory(room=2)
    first, second, third = (Holder(memory) for _ in range(3))
    for holder in (first, second, first, third):
        holder.use()
    assert [first.has_arena, second.has_arena, third.has_arena] == [True, False, True]
    assert memory.eviction.shortages == 1
    memory.eviction.evict_all()
    assert memory.eviction.shortages == 1


def test_no_more_arenas_than_needed_are_given_up() -> None:
    memory = Memory(room=3)
    holders = [Holder(memory) for _ in range(4)]
    for holder in holders:
        holder.use()
    assert [holder.has_arena for holder in holders] == [False, True, True, True]


def test_a_session_without_room_keeps_its_own() -> None:
    memory = Memory(room=1)
    alone = Holder(memory)
    alone.use()
    memory.free = -1
    alone.use()
    assert alone.has_arena


def test_a_runner_that_does_not_give_up_its_arena_is_killed() -> None:
    memory = Memory(room=1)
    stubborn, other = Holder(memory, stubborn=True), Holder(memory)
    stubborn.use()
    other.use()
    assert stubborn.stopped and not stubborn.has_arena and other.has_arena


def test_a_session_may_be_evicted_by_itself() -> None:
    memory = Memory(room=1)
    one = Holder(memory)
    memory.eviction.evict(one)  # It never had an arena.
    one.use()
    memory.eviction.evict(one)
    assert not one.has_arena
