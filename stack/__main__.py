"""`python -m stack serve` and `python -m stack demo`; settings come from the environment."""

from __future__ import annotations

import argparse
import sys

from domain.settings import settings
from stack.demo import demo
from stack.serve import serve

COMMANDS = {"serve": serve, "demo": demo}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m stack", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    return COMMANDS[parser.parse_args().command](settings())


if __name__ == "__main__":
    sys.exit(main())
