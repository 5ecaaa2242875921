"""Indexes the extensions in a job's folder by the call that built each, so that the same call loads without
compiling."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

INDEX, REFUSALS = "built.json", "refused.json"
TEMPORARY = Path("/tmp")
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
"""Variables of the environment by which compilers read other files. Only a source sets them."""
_CHOICES = ("CXX", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST")
"""Variables that choose compilers and architectures. A source may change them after a refusal, and try again."""
_FLAGS = ("extra_cflags", "extra_cuda_cflags", "extra_ldflags")
_READS = re.compile(r"(?:^|[ ,=])(?:-[Ii]|--(?:pre-)?include|-optf|--options-file|@)")
"""A compiler option that names headers or a file of options."""
_INCLUDE = re.compile(r'#\s*(?:include|import)\s*(?:([<"])\w)?')
"""The name in group 1 is a system header's, or one beside the file; a macro's or a path's is in no group."""
_BINDING = re.compile(r"PYBIND11_MODULE\s*\(\s*TORCH_EXTENSION_NAME")


class BuiltExtensions:
    """The index moves with `folder`, unlike torch's and ninja's records, which hold for one path only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, ModuleType | str] = {}

    def key(self, function: str, arguments: dict[str, Any]) -> str | None:
        """A digest of a call of `load` or `load_inline`; None for a call whose result is not indexed."""
        if arguments.get("is_standalone"):
            return None
        place = arguments.get("build_directory")
        if place is not None and (not isinstance(place, str | Path) or self._within_job(place) is None):
            return None
        sources = arguments.get("sources") or []
        try:
            paths = [Path(path) for path in ([sources] if isinstance(sources, (str, Path)) else sources)]
            contents = [path.read_text("latin-1") for path in paths]
            if self._is_whole(arguments, contents):
                # The runner may draw another name or folder than the builder: f"relu_{uuid4()}", mkdtemp().
                arguments = arguments | {"name": None, "build_directory": None, "sources": [p.suffix for p in paths]}
            text = json.dumps([function, arguments, contents], sort_keys=True, default=str)
            text = text.replace(str(self._folder.parent), ".")
        except (OSError, TypeError, ValueError):
            return None
        return hashlib.blake2b(text.encode(errors="replace")).hexdigest()

    def _is_whole(self, arguments: dict[str, Any], contents: list[str]) -> bool:
        """Whether a module's texts and options alone make its code: neither its name nor a file that the job may
        change."""
        inline = [arguments.get(name) or [] for name in ("cpp_sources", "cuda_sources")]
        texts = contents + [text for each in inline for text in ([each] if isinstance(each, str) else each)]
        has_folder = bool(contents) or arguments.get("build_directory") is not None
        code = "\n".join(texts)
        return (
            arguments.get("is_python_module", True)
            and not ("TORCH_LIBRARY" in code and "TORCH_EXTENSION_NAME" in _BINDING.sub("", code))
            and all(include[1] == "<" or (include[1] and not has_folder) for include in _INCLUDE.finditer(code))
            and all(self._within_job(path) is None for path in arguments.get("extra_include_paths") or [])
            and not any(_READS.search(str(flag)) for flags in _FLAGS for flag in arguments.get(flags) or [])
            and not any(os.getenv(name) for name in _VARIABLES)  # noqa: TID251 - the compilers' own
        )

    def files(self) -> dict[str, Path]:
        """The library that each call built, by the call's key, where the file exists."""
        paths = {key: self._folder / library for key, (_, library) in self._index().items()}
        return {key: path for key, path in paths.items() if path.exists()}

    def load(self, key: str | None) -> ModuleType | str | None:
        """The module that this call built, imported; for a plain library, its path after loading. None if nothing is
        built."""
        if key is None:
            return None
        if key in self._loaded:
            return self._loaded[key]
        library = self.files().get(key)
        if library is None:
            return None
        name = self._index()[key][0]
        if name is None:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
            self._loaded[key] = str(library)
            return self._loaded[key]
        spec = importlib.util.spec_from_file_location(name, library)
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._loaded[key] = module
        return module

    def add(self, key: str | None, extension: Any) -> None:
        """Records the extension that a call built."""
        is_module = isinstance(extension, ModuleType)
        library = getattr(extension, "__file__", None) if is_module else extension
        if key is None or not isinstance(library, str):
            return
        self._loaded[key] = extension
        within = self._within_job(library)
        if within is not None:  # Only files in the job's folder move with it.
            # Import under the file's name, whatever the module calls itself.
            name = Path(library).stem if is_module else None
            index = self._index() | {key: [name, os.path.relpath(within, self._folder.name)]}
            self._folder.mkdir(exist_ok=True)
            (self._folder / INDEX).write_text(json.dumps(index), encoding="utf-8")

    def refuse(self, key: str | None, message: str) -> None:
        """Records a call whose source no compiler accepts, with the compilers and architectures of now."""
        if key is not None:
            self._folder.mkdir(exist_ok=True)
            refusals = self._read(REFUSALS) | {_tried(key): message.replace(f"{self._folder.parent}/", "")}
            (self._folder / REFUSALS).write_text(json.dumps(refusals), encoding="utf-8")

    def refusal(self, key: str | None) -> str | None:
        """The compiler's message about that call's source; None if it was not refused as it would be compiled now."""
        message = self._read(REFUSALS).get(_tried(key)) if key is not None else None
        return message if isinstance(message, str) else None

    def _within_job(self, place: str | Path) -> Path | None:
        """The path relative to the job's folder; None outside of it.

        /tmp is the job's folder too, where submissions have a private /tmp.
        """
        job, real = self._folder.parent.resolve(), Path(place).resolve()
        for root in (job, TEMPORARY):
            with suppress(OSError, ValueError):
                if root.samefile(job):
                    return real.relative_to(root)
        return None

    def _index(self) -> dict[str, list[Any]]:
        return self._read(INDEX)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            index: dict[str, Any] = json.loads((self._folder / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # A process that was killed may have left half of it.
            return {}
        return index


def _tried(key: str) -> str:
    return f"{key} {[os.getenv(name) for name in (*_VARIABLES, *_CHOICES)]}"  # noqa: TID251 - the compilers' own
