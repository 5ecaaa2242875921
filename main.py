"""`python main.py --port 8001`: the same as `make serve`, with the flags of the original service."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from environs import EnvError

from domain.settings import HIGHEST_PORT, LOG_LEVELS, settings
from stack.serve import serve


def main() -> int:
    try:
        defaults = settings()
    except EnvError as error:
        print(error, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(description="Serve the kernel evaluation service on this machine until Ctrl-C.")
    parser.add_argument("--host", default=defaults.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=defaults.port, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--log-level",
        default=defaults.log_level,
        type=str.upper,
        choices=LOG_LEVELS,
        help="how much to log (default: %(default)s)",
    )
    flags = parser.parse_args()
    if not 1 <= flags.port <= HIGHEST_PORT:
        print(f"--port must be between 1 and {HIGHEST_PORT}, not {flags.port}", file=sys.stderr)
        return 2
    return serve(dataclasses.replace(defaults, host=flags.host, port=flags.port, log_level=flags.log_level))


if __name__ == "__main__":
    sys.exit(main())
