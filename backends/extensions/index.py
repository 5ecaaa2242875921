"""The extensions in a job's folder, by the call that built each: the same call loads it and compiles nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

INDEX = "built.json"
TEMPORARY = Path("/tmp")


class BuiltExtensions:
    """Kept in `folder`, wherever that is moved: torch's own record, ninja's, holds for one place only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, ModuleType | str] = {}

    def key(self, function: str, arguments: dict[str, Any]) -> str | None:
        """A name for a call of `load` or `load_inline`; None for one whose result is not kept here."""
        if arguments.get("is_standalone"):
            return None
        place = arguments.get("build_directory")
        if place is not None and (not isinstance(place, str | Path) or self._within_job(place) is None):
            return None
        sources = arguments.get("sources") or []
        paths = [sources] if isinstance(sources, (str, Path)) else sources
        try:
            contents = [hashlib.blake2b(Path(path).read_bytes()).hexdigest() for path in paths]
            text = json.dumps([function, arguments, contents], sort_keys=True, default=str)
            text = text.replace(str(self._folder.parent), ".")
        except (OSError, TypeError, ValueError):
            return None
        return hashlib.blake2b(text.encode(errors="replace")).hexdigest()

    def has(self, key: str) -> bool:
        """Whether this call has built its extension, and that is there."""
        found = self._index().get(key)
        return found is not None and (self._folder / found[1]).exists()

    def load(self, key: str | None) -> ModuleType | str | None:
        """The extension that this call built, imported, or loaded and its path; None where there is none yet."""
        if key is None:
            return None
        if key in self._loaded:
            return self._loaded[key]
        found = self._index().get(key)
        if found is None or not (self._folder / found[1]).exists():
            return None
        name, library = found
        if name is None:
            torch.ops.load_library(self._folder / library)  # type: ignore[no-untyped-call]
            self._loaded[key] = str(self._folder / library)
            return self._loaded[key]
        spec = importlib.util.spec_from_file_location(name, self._folder / library)
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._loaded[key] = module
        return module

    def add(self, key: str | None, extension: Any) -> None:
        """Notes what a call built."""
        is_module = isinstance(extension, ModuleType)
        library = getattr(extension, "__file__", None) if is_module else extension
        if key is None or not isinstance(library, str):
            return
        self._loaded[key] = extension
        within = self._within_job(library)
        if within is not None:  # Only what lies in the job's folder moves with it.
            # Imported under the file's name, whatever the module calls itself.
            name = Path(library).stem if is_module else None
            index = self._index() | {key: [name, os.path.relpath(within, self._folder.name)]}
            self._folder.mkdir(exist_ok=True)
            (self._folder / INDEX).write_text(json.dumps(index), encoding="utf-8")

    def _within_job(self, place: str | Path) -> Path | None:
        """Where in the job's folder it lies, which moves with the build; None for what lies elsewhere.

        /tmp is the job's folder too, where submissions have one of their own.
        """
        job, real = self._folder.parent.resolve(), Path(place).resolve()
        for root in (job, TEMPORARY):
            with suppress(OSError, ValueError):
                if root.samefile(job):
                    return real.relative_to(root)
        return None

    def _index(self) -> dict[str, list[Any]]:
        try:
            index: dict[str, list[Any]] = json.loads((self._folder / INDEX).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return index
