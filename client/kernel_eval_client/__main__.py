"""`python -m kernel_eval_client`: the command line without its installed name."""

from kernel_eval_client.cli.main import run

run()
