"""One source in each language, the line of it to break, and what is wrong with it then."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from backends.languages.registry import LANGUAGES, is_installed
from domain.kernel import Kernel, KernelType
from stack.example import Example, every_example


@dataclass(frozen=True)
class Source:
    """An example. With `right` replaced by `wrong` its compiler refuses it, in a line that has the text `wrong`."""

    example: str
    right: str
    wrong: str

    def kernel(self, *, wrong: bool = False) -> Kernel:
        body = _examples()[self.example].body["kernel"]
        source = body["source_code"]
        assert source.count(self.right) == 1
        return Kernel.from_wire({**body, "source_code": source.replace(self.right, self.wrong) if wrong else source})


SOURCES = {
    "gluon": Source("gluon-scaled-add", "total = scale *", "total = scale * gl.nothing() *"),
    "helion": Source("helion-softmax", "values = x[row, :]", "values = hl.nothing(x[row, :])"),
    "tilelang": Source("tilelang-scaled-add", "y[down * tile + i, right * tile + j]", "y[down * tile + i, right, j]"),
    "cute_dsl": Source("cute-dsl-scaled-add", "scale * x[at] + y[at]", "scale * x[at] + y[at, 1, 2]"),
}


def installed(name: str) -> None:
    """Skips the test where the language of that kernel type is not installed."""
    (language,) = (language for language in LANGUAGES if language.name == KernelType(name))
    if not is_installed(language):
        pytest.skip(f"{language.package} is not installed: pip install -c constraints.txt --group {name}")


def _examples() -> dict[str, Example]:
    return {example.name: example for example in every_example()}
