"""The process of a clone that `clone_commands` forks programs from. It runs as a script, with the clone's Python and
nothing of the tests: `clone_source.py manage <clone>`. Requests come on standard input, a line each.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load_manage(clone: str) -> Callable[[], Any]:
    """Import what `./manage` runs, and all of its commands."""
    sys.path[0] = clone  # instead of the folder of this script
    cooperation = importlib.import_module("gateway.runtime.process")
    cooperation.patch_all()
    command = importlib.import_module("gateway.operator.command")
    for module in {module for module, _, _ in command.COMMANDS.values()}:
        importlib.import_module(f"gateway.operator.{module}")
    return command.command


def load_client(clone: str) -> Callable[[], Any]:
    """Import what `./llmgateway` runs, and all of its commands."""
    sys.path[0] = f"{clone}/cli"
    main = importlib.import_module("llmgateway_cli.main")
    for file in Path(clone, "cli/llmgateway_cli/commands").glob("*.py"):
        importlib.import_module(f"llmgateway_cli.commands.{file.stem}")
    return main.entry


PROGRAMS = {"manage": load_manage, "llmgateway": load_client}


def become(program: str, run: Callable[[], Any], request: dict[str, Any]) -> None:
    """Run the program in this process, with the arguments and the streams of a request."""
    typed = os.open(request["typed"], os.O_RDONLY)
    printed = os.open(request["printed"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor, number in ((typed, 0), (printed, 1), (printed, 2)):
        os.dup2(descriptor, number)
    sys.stdin = os.fdopen(0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [f"./{program}", *request["arguments"]]
    run()


def serve(program: str, clone: str) -> None:
    """Fork the program for each request, and print its exit status. Returns in the programs as well."""
    fork = os.fork  # gevent's starts its event loop, which must not run before a fork
    wait = os.waitpid
    run = PROGRAMS[program](clone)
    while line := sys.stdin.readline():
        sys.stdout.flush()
        child = fork()
        if not child:
            become(program, run, json.loads(line))
            return
        print(wait(child, 0)[1], flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
