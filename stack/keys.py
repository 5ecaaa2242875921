"""`python -m stack keys`: creates, lists and revokes API keys of the service."""

from __future__ import annotations

import argparse
import sys
import time

from api.auth.key_file import KeyFile, KeyFileError
from domain.access import Scope
from domain.settings import Settings

REFUSED = 1
MOST = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", required=True)
    add = what.add_parser("add", help="make a key and print it: the one time that it can be had")
    add.add_argument("name", help="whose it is, for the list")
    add.add_argument(
        "--scope",
        action="append",
        choices=[scope.value for scope in Scope],
        required=True,
        help="what it opens; repeatable",
    )
    add.add_argument("--requests-per-minute", type=_count, help="default: KEY_REQUESTS_PER_MINUTE")
    add.add_argument("--max-jobs", type=_count, help="jobs that are not done at one moment; default: KEY_MAX_JOBS")
    what.add_parser("list", help="show every key without its secret")
    revoke = what.add_parser("revoke", help="refuse a key from its next request on; its jobs go on and are nobody's")
    revoke.add_argument("name", help="its name or its id")


def keys(settings: Settings, arguments: argparse.Namespace) -> int:
    """Returns the exit status: 0, or 1 if the file of keys cannot be read or changed."""
    file = KeyFile(settings.api_keys_file, settings.key_requests_per_minute, settings.key_max_jobs)
    try:
        match arguments.what:
            case "add":
                _add(file, arguments)
            case "list":
                _list(file)
            case "revoke":
                file.revoke(arguments.name)
    except KeyFileError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except OSError as error:
        print(f"the keys cannot be kept ({error}); name another file with API_KEYS_FILE", file=sys.stderr)
        return REFUSED
    return 0


def _add(file: KeyFile, arguments: argparse.Namespace) -> None:
    own = {"requests_per_minute": arguments.requests_per_minute, "max_jobs": arguments.max_jobs}
    limits = {name: value for name, value in own.items() if value is not None}
    # Only the key goes to stdout, so that it can be piped to its store.
    print(file.add(arguments.name, arguments.scope, limits))
    print("Keep it now: only its hash is stored. Send it as `Authorization: Bearer <key>`.", file=sys.stderr)


def _list(file: KeyFile) -> None:
    stored = file.keys().values()
    if not stored:
        print("There are no keys yet: make one with `python -m stack keys add NAME --scope submit`.", file=sys.stderr)
    for key in sorted(stored, key=lambda key: key.created_at):
        created = time.strftime("%Y-%m-%d", time.localtime(key.created_at))
        limits = f"{key.requests_per_minute} requests a minute, {key.max_jobs} jobs"
        print(f"{key.key_id}  {created}  {key.name:<20}  {' '.join(sorted(key.scopes)):<18}  {limits}")


def _count(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST}, not {text!r}")
    return int(text)
