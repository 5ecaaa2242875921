"""The API keys: made, listed and revoked in a file that holds no key, only what is needed to know one again."""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from domain.access import Key, Scope

PREFIX = "kevk"
"""Of "kernel evaluation key". A key is `kevk_<its id>_<256 random bits in hex>`: a pattern for scanners of leaks."""

PATTERN = re.compile(PREFIX + r"_([0-9a-f]{12})_[0-9a-f]{64}")
NAME = re.compile(r"[\w.@-]{1,64}")
OTHERS_MAY_WRITE = 0o022
_NOBODY = sha256(b"").hexdigest()


class KeyFileError(Exception):
    """The file of keys cannot be trusted or read, or not be changed as asked; the message says what to do."""


class KeyFile:
    """The file of keys. Reading is safe from any thread and sees a change with the next call; no file is no keys.

    Keys without limits of their own have those given here.
    """

    def __init__(self, path: Path, requests_per_minute: int, max_jobs: int) -> None:
        self._path = path
        self._limits = {"requests_per_minute": requests_per_minute, "max_jobs": max_jobs}
        self._read: tuple[tuple[int, ...] | None, dict[str, Key]] = (None, {})

    def keys(self) -> dict[str, Key]:
        """By id. Raises KeyFileError."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise KeyFileError(f"{self._path} cannot be looked at ({error.strerror}): see to its rights") from error
        if found.st_mode & OTHERS_MAY_WRITE:
            raise KeyFileError(f"{self._path} can be written by others, who could add keys: chmod 600 it")
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        read = self._read
        if read[0] != version:
            read = self._read = (version, self._understood(self._entries()))
        return read[1]

    def find(self, presented: str) -> Key | None:
        """The key that was presented; None for one that is malformed, was never made or is revoked."""
        match = PATTERN.fullmatch(presented)
        found = self.keys().get(match[1]) if match else None
        # Compared in constant time, also with nobody's, so that answers do not tell how close a guess was.
        same = hmac.compare_digest(_digest(presented).encode(), (found.digest if found else _NOBODY).encode())
        return found if same else None

    def add(self, name: str, scopes: Iterable[Scope], limits: dict[str, int]) -> str:
        """Make a key and give it out, the one time that it can be had; KeyFileError for a name that is taken."""
        if not NAME.fullmatch(name):
            raise KeyFileError(f"{name!r} is no name for a key: 1 to 64 letters, digits and . _ @ -")
        key_id = secrets.token_hex(6)
        secret = f"{PREFIX}_{key_id}_{secrets.token_hex(32)}"
        with self._changing() as entries:
            if any(entry["name"] == name for entry in entries):
                raise KeyFileError(f"there is a key {name!r} already: revoke it first, or choose another name")
            entries.append(
                {"id": key_id, "name": name, "scopes": sorted(set(scopes)), "sha256": _digest(secret)}
                | {"created_at": int(time.time()), **limits}
            )
        return secret

    def revoke(self, name: str) -> None:
        """Forget the key of that name or id, from the next request on. Raises KeyFileError when there is none."""
        with self._changing() as entries:
            kept = [entry for entry in entries if name not in (entry["name"], entry["id"])]
            if len(kept) == len(entries):
                raise KeyFileError(f"there is no key {name!r}: `python -m stack keys list` shows what there is")
            entries[:] = kept

    @contextmanager
    def _changing(self) -> Iterator[list[dict[str, Any]]]:
        """The entries, to be changed; written back whole, so that a reader sees the file before or after."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = list(self._entries()) if self.keys() else []
            yield entries
            descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"keys": entries}, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(descriptor)
            os.replace(name, self._path)
        finally:
            os.close(lock)

    def _entries(self) -> list[dict[str, Any]]:
        try:
            entries: list[dict[str, Any]] = json.loads(self._path.read_text(encoding="utf-8"))["keys"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error
        return entries

    def _understood(self, entries: list[dict[str, Any]]) -> dict[str, Key]:
        try:
            return {str(entry["id"]): self._key(entry) for entry in entries}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(error) from error

    def _key(self, entry: dict[str, Any]) -> Key:
        limits = {name: int(entry.get(name, default)) for name, default in self._limits.items()}
        return Key(
            key_id=str(entry["id"]),
            name=str(entry["name"]),
            scopes=frozenset(map(Scope, entry["scopes"])),
            digest=str(entry["sha256"]),
            created_at=float(entry["created_at"]),
            **limits,
        )

    def _unreadable(self, error: Exception) -> KeyFileError:
        return KeyFileError(
            f"{self._path} is no file of keys ({type(error).__name__}): mend it, or put it out of the way"
        )


def _digest(key: str) -> str:
    # Of 256 random bits a plain hash is enough: there is nothing to guess, and a slow one would cost each request.
    return sha256(key.encode(errors="replace")).hexdigest()
