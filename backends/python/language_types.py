"""Kernel types of languages inside Python (`backends.languages`): each is called as `torch` is."""

from __future__ import annotations

from backends.python.base import PythonBackend
from domain.kernel import KernelType


class HelionBackend(PythonBackend):
    kernel_type = KernelType.HELION


class TileLangBackend(PythonBackend):
    kernel_type = KernelType.TILELANG


class CuteDslBackend(PythonBackend):
    kernel_type = KernelType.CUTE_DSL
