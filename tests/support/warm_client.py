"""Runs a program with imported modules in place of `python -m <words>`: support/warm.py, for shell scripts.

The first argument is the descriptor of the socket to the forking process; words follow. Standard input, output and
errors, environment, folder and exit status are those of the program.
"""

import json
import os
import socket
import sys


def run(descriptor: int, words: list[str]) -> int:
    """Run the module words[0] with the following arguments, and return its exit status."""
    line, theirs = socket.socketpair()
    control = socket.socket(fileno=descriptor)
    given = {"words": words, "environment": dict(os.environ), "folder": os.getcwd()}
    with theirs:
        socket.send_fds(control, [json.dumps(given).encode()], [1, 2, theirs.fileno(), 0])
    with line.makefile() as told:
        _, status = told.read().split()  # its process id comes first
    return abs(int(status))


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
