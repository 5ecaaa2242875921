"""`python -m stack serve`, `python -m stack demo` and `python -m stack keys`; settings come from the environment."""

from __future__ import annotations

import argparse
import sys

from environs import EnvError

from domain.settings import misspelt_settings, settings
from stack import keys

MALFORMED = 2
"""Exit status for a setting or an argument that does not parse."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m stack", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="start everything and leave it running until Ctrl-C")
    commands.add_parser("demo", help="start everything, judge every example, stop everything")
    keys.add_arguments(commands.add_parser("keys", help="make, list and revoke API keys"))
    arguments = parser.parse_args()
    try:
        if arguments.command == "keys":
            return keys.keys(settings(), arguments)
        for message in misspelt_settings():
            print(message, file=sys.stderr)
        # Imported here: the API's image manages keys, but has no code to start a service.
        if arguments.command == "demo":
            from stack.demo import demo

            return demo(settings())
        from stack.serve import serve

        return serve(settings())
    except EnvError as error:
        print(error, file=sys.stderr)
        return MALFORMED


if __name__ == "__main__":
    sys.exit(main())
