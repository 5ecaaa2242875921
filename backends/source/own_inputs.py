"""The inputs that a source makes itself, for the present case: `get_inputs()` returns one set, or yields several.

`get_cases()` gives arguments of `get_inputs()`. Without it, and without cases of the request, each set that
`get_inputs()` yields is a case of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from backends.source.argument_binding import input_maker
from backends.source.rng_state import seed_everything
from domain.cases.case import ARGUMENTS, MAX_CASES, CaseSource, keyword_arguments, sets_as_cases
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status

CASES_SEED = 0
"""The seed under which a source tells its cases, which are the same for every seed."""
NO_CASES = "get_cases() has to return a list of dicts, each with keyword arguments of get_inputs()"
NO_SET = "get_inputs() yielded no set of inputs: yield at least one, or end it with `return [...]`"
TOO_MANY = (
    f"get_inputs() yields more than {MAX_CASES} sets, and each is a case of the job: yield at most {MAX_CASES}, each "
    "with all arguments of a call"
)
OTHER_NUMBER = (
    "get_inputs() yielded {now} sets, and {first} at first: each is a case, so each call has to yield as many"
)
NOT_ALWAYS = "get_inputs() yields sets in one call, and returns one in another: do the same in each call"
SEVERAL_FOR_A_CASE = (
    "get_inputs() yielded several sets for one case: with `cases` in the request, or get_cases(), it yields one; leave "
    "these out, and each set is a case"
)
YIELD_ALL = "each `yield` gives one set with all arguments of a call, as in `yield [x, y]`"
_END = object()

Arguments = Mapping[str, Any]


class OwnInputs:
    """The functions `get_inputs` and `get_cases` of one source, found among the attributes of `holders`.

    They are searched once, because a source makes as many sets as there are calls. `case` is `Kernel.case` of the
    present case; None: the first one.
    """

    def __init__(self, holders: Sequence[Any], kernel: Kernel) -> None:
        self._get_cases = input_maker("get_cases", holders)
        self.case = kernel.case
        by_case = self.case is not None or self._get_cases is not None
        self._get_inputs = input_maker("get_inputs", holders, by_case=by_case)
        self._contract_makes_inputs = kernel.io is not None and bool(kernel.io.args)
        self._yields: bool | None = None
        self._set_count: int | None = None

    @property
    def makes_inputs(self) -> bool:
        return self._get_inputs is not None

    @property
    def case_source(self) -> CaseSource:
        """The function that gives the cases."""
        return CaseSource.GET_INPUTS if self._get_cases is None else CaseSource.GET_CASES

    def cases(self, draw: Callable[[Callable[[], Any]], Any]) -> list[dict[str, Any]] | None:
        """The source's own cases, None without any; `draw` calls a function that makes inputs.

        Raises KernelFault for cases that are none, and what the source raises.
        """
        if self._get_cases is not None:
            return self._listed_cases()
        if not self.makes_inputs or self._contract_makes_inputs:
            return None
        self._set_count = draw(self._count_sets)
        self._yields = self._set_count is not None
        return None if self._set_count is None else sets_as_cases(self._set_count)

    def draw(self, seed: int) -> tuple[Any, bool]:
        """The arguments that `get_inputs()` gives under that seed for the present case, and whether it yielded them.

        Raises KernelFault for sets that are no cases, and what the source raises.
        """
        assert self._get_inputs is not None
        arguments = self._arguments()
        seed_everything(seed)
        result = self._get_inputs(**(arguments or {}))
        if self._yields not in (None, isinstance(result, Iterator)):
            raise _fault(NOT_ALWAYS)
        if not isinstance(result, Iterator):
            return result, False
        return (_set_at(result, self._index, self._set_count) if arguments is None else _only_set(result)), True

    @property
    def _index(self) -> int:
        """The place of the present case among the source's own."""
        return 0 if self.case is None else int(self.case["index"])

    def _arguments(self) -> Arguments | None:
        """Keyword arguments of `get_inputs()`; None where it yields the cases."""
        if self.case is not None and ARGUMENTS in self.case:
            return dict(self.case[ARGUMENTS])
        if self._get_cases is None:
            return None
        return keyword_arguments(self._listed_cases()[self._index])

    def _listed_cases(self) -> list[dict[str, Any]]:
        assert self._get_cases is not None
        seed_everything(CASES_SEED)
        listed: Any = self._get_cases()
        if not isinstance(listed, list | tuple) or not all(isinstance(case, dict) for case in listed) or not listed:
            raise _fault(NO_CASES)
        return list(listed)

    def _count_sets(self) -> int | None:
        """How many sets `get_inputs()` yields; None if it returns one. Only a call can tell, and no set is kept."""
        assert self._get_inputs is not None
        seed_everything(CASES_SEED)
        sets = self._get_inputs()
        if not isinstance(sets, Iterator):
            return None
        count = 0
        with _closed(sets):
            while count <= MAX_CASES and next(sets, _END) is not _END:
                count += 1
        if not 1 <= count <= MAX_CASES:
            raise _fault(TOO_MANY if count else NO_SET)
        return count


def _set_at(sets: Iterator[Any], index: int, count: int | None) -> Any:
    """The set of that index, of `count` as far as that is known; earlier ones are made and dropped.

    The code after the last `yield` runs, too: it must not yield another set.
    """
    with _closed(sets):
        for place in range(index + 1):
            input_set: Any = None  # A set is dropped before the next one is made.
            input_set = next(sets, _END)
            if input_set is _END:
                raise _fault(NO_SET if count is None else OTHER_NUMBER.format(now=place, first=count))
        if index + 1 == count and next(sets, _END) is not _END:
            raise _fault(OTHER_NUMBER.format(now=f"more than {count}", first=count))
    return input_set


def _only_set(sets: Iterator[Any]) -> Any:
    """The one set of a case that gave the arguments."""
    with _closed(sets):
        input_set = next(sets, _END)
        if input_set is _END:
            raise _fault(NO_SET)
        if next(sets, _END) is not _END:
            raise _fault(SEVERAL_FOR_A_CASE)
    return input_set


@contextmanager
def _closed(sets: Iterator[Any]) -> Iterator[None]:
    """A block after which a generator is closed: a `with` around its `yield` holds in the caller, too, until then."""
    close: Callable[[], object] = getattr(sets, "close", lambda: None)
    try:
        yield
    finally:
        close()


def _fault(message: str) -> KernelFault:
    return KernelFault(Status.RUNTIME_ERROR, message, compiled=True)
