"""Gluon: the lower level of Triton, whose launches and cache are Triton's."""

from __future__ import annotations

from backends.languages.language import Language

LANGUAGE = Language(
    name="gluon",
    title="Gluon",
    module="triton.experimental.gluon",
    package="triton",
    inside_triton=True,
    preloaded=True,
)
