"""What an error keeps in memory."""

from __future__ import annotations

import gc
import weakref

import pytest

from domain.fault import let_go_of_frames


class Large:
    pass


def test_an_error_on_its_way_keeps_nothing_of_the_frames_it_came_through() -> None:
    made: list[weakref.ref[Large]] = []

    def inner() -> None:
        own = Large()
        made.append(weakref.ref(own))
        raise ValueError

    def outer() -> None:
        own = Large()
        made.append(weakref.ref(own))
        try:
            inner()
        except ValueError as error:
            raise KeyError from error

    gc.disable()
    try:
        with pytest.raises(KeyError) as raised:
            outer()
        assert all(each() is not None for each in made)
        let_go_of_frames(raised.value)
        assert [each() for each in made] == [None, None]
    finally:
        gc.enable()
    assert raised.value.__traceback__ is not None, "where it came from can still be told"


def test_no_error_is_no_error() -> None:
    assert let_go_of_frames(None) is None
