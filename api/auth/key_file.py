"""Creates, lists and revokes API keys in a file that holds no key, only digests to recognise one."""

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
"""Short for "kernel evaluation key". A key is `kevk_<id>_<256 random bits in hex>`: a pattern for leak scanners."""

PATTERN = re.compile(PREFIX + r"_([0-9a-f]{12})_[0-9a-f]{64}")
NAME = re.compile(r"[\w.@-]{1,64}")
OTHERS_MAY_WRITE = 0o022
_NO_DIGEST = sha256(b"").hexdigest()


class KeyFileError(Exception):
    """The key file cannot be trusted, read or changed as requested; the message says what to do."""


class KeyFile:
    """The file of API keys. Reads are thread-safe and see a change with the next call; a missing file holds no keys.

    The limits here apply to keys without limits of their own.
    """

    def __init__(self, path: Path, requests_per_minute: int, max_jobs: int) -> None:
        self._path = path
        self._limits = {"requests_per_minute": requests_per_minute, "max_jobs": max_jobs}
        self._read: tuple[tuple[int, ...] | None, dict[str, Key]] = (None, {})

    def keys(self) -> dict[str, Key]:
        """All keys by id. Raises KeyFileError."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise KeyFileError(f"{self._path} cannot be looked at ({error.strerror}): see to its rights") from error
        if status.st_mode & OTHERS_MAY_WRITE:
            raise KeyFileError(f"{self._path} can be written by others, who could add keys: chmod 600 it")
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        read = self._read
        if read[0] != version:
            read = self._read = (version, self._understood(self._entries()))
        return read[1]

    def find(self, presented: str) -> Key | None:
        """The presented key; None for one that is malformed, unknown or revoked."""
        match = PATTERN.fullmatch(presented)
        key = self.keys().get(match[1]) if match else None
        # Compared in constant time, also with nobody's, so that answers do not tell how close a guess was.
        same = hmac.compare_digest(_digest(presented).encode(), (key.digest if key else _NO_DIGEST).encode())
        return key if same else None

    def add(self, name: str, scopes: Iterable[Scope], limits: dict[str, int]) -> str:
        """Creates a key and returns it, the only time that it is visible; KeyFileError for a name that exists."""
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
        """Removes the key of that name or id, from the next request on. Raises KeyFileError when there is none."""
        with self._changing() as entries:
            remaining = [entry for entry in entries if name not in (entry["name"], entry["id"])]
            if len(remaining) == len(entries):
                raise KeyFileError(f"there is no key {name!r}: `python -m stack keys list` shows what there is")
            entries[:] = remaining

    @contextmanager
    def _changing(self) -> Iterator[list[dict[str, Any]]]:
        """Yields the entries for a change; writes them back as a whole, so that readers see either version of the
        file."""
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
    # A fast hash suffices for 256 random bits: nobody can guess them, and a slow hash would delay each request.
    return sha256(key.encode(errors="replace")).hexdigest()
