"""`python -m stack serve` and `python -m stack demo`; settings come from the environment."""

from __future__ import annotations

import argparse
import sys

from environs import EnvError

from domain.settings import settings
from stack.demo import demo
from stack.serve import serve

COMMANDS = {"serve": serve, "demo": demo}
MALFORMED = 2
"""The exit status of a setting or an argument that does not parse."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m stack", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    try:
        return COMMANDS[parser.parse_args().command](settings())
    except EnvError as error:
        print(error, file=sys.stderr)
        return MALFORMED


if __name__ == "__main__":
    sys.exit(main())
