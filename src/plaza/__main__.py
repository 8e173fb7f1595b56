"""`python -m plaza` is `plaza`."""

from plaza.cli import run_and_exit

run_and_exit()
