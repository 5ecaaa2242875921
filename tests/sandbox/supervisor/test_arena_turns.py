"""Who gives up an arena, and what becomes of a runner that does not."""

from __future__ import annotations

from domain.fault import KernelFault
from domain.result import Status
from sandbox.supervisor.arena_turns import ArenaTurns

ARENA = 10


class Memory:
    """A device with room for `room` arenas."""

    def __init__(self, room: int) -> None:
        self.free = room * ARENA
        self.turns = ArenaTurns(lambda new_bytes: self.free >= new_bytes)


class Holder:
    """A session with an arena from its first turn on; a stubborn one does not give it up by itself."""

    def __init__(self, memory: Memory, *, stubborn: bool = False) -> None:
        self.memory = memory
        self.stubborn = stubborn
        self.has_arena = self.stopped = False

    def turn(self) -> None:
        self.memory.turns.take(self, 0 if self.has_arena else ARENA)
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
        holder.turn()
    assert one.has_arena and other.has_arena


def test_the_arena_that_was_used_longest_ago_goes_first() -> None:
    memory = Memory(room=2)
    first, second, third = (Holder(memory) for _ in range(3))
    for holder in (first, second, first, third):
        holder.turn()
    assert [first.has_arena, second.has_arena, third.has_arena] == [True, False, True]


def test_no_more_arenas_than_needed_are_given_up() -> None:
    memory = Memory(room=3)
    holders = [Holder(memory) for _ in range(4)]
    for holder in holders:
        holder.turn()
    assert [holder.has_arena for holder in holders] == [False, True, True, True]


def test_a_session_without_room_keeps_its_own_turn() -> None:
    memory = Memory(room=1)
    alone = Holder(memory)
    alone.turn()
    memory.free = -1
    alone.turn()
    assert alone.has_arena


def test_a_runner_that_does_not_give_up_its_arena_is_killed() -> None:
    memory = Memory(room=1)
    stubborn, other = Holder(memory, stubborn=True), Holder(memory)
    stubborn.turn()
    other.turn()
    assert stubborn.stopped and not stubborn.has_arena and other.has_arena


def test_a_session_may_end_its_turn_itself() -> None:
    memory = Memory(room=1)
    one = Holder(memory)
    memory.turns.end(one)  # It never had a turn.
    one.turn()
    memory.turns.end(one)
    assert not one.has_arena
