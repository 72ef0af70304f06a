"""`python -m memlog` is the command line."""

from server.cli import main

main()
