"""The process that warm programs are forked from. It has imported their modules and does nothing else.

It runs as a script; its argument is the descriptor of a socket. A message on the socket has the arguments of
subprocess.Popen as JSON and descriptors: standard output, standard error, a socket that receives the process id and
later the exit status of the program, and perhaps standard input.
"""

import array
import gc
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]
    gc.disable()  # during the imports: their objects live until the end; programs enable it

    from gateway.runtime.process import patch_all

    patch_all()

import _socket  # noqa: E402
import importlib  # noqa: E402
import signal  # noqa: E402
from collections.abc import Callable  # noqa: E402
from select import POLLIN  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from gevent.monkey import get_original  # noqa: E402
from gunicorn.app import wsgiapp  # noqa: E402
from gunicorn.glogging import Logger  # noqa: E402, F401
from support import cheap_disks, cheap_passwords, leftovers, prepared  # noqa: E402

import gateway.application.starting  # noqa: E402
import gateway.operator.start  # noqa: E402
import gateway.server.logging_setup  # noqa: E402
import gateway.server.worker  # noqa: E402, F401
from gateway.metering.sources import known_clients  # noqa: E402
from gateway.operator import command as manage  # noqa: E402
from gateway.runtime.process import end_with  # noqa: E402
from gateway.server import boot, launch  # noqa: E402
from gateway.surfaces import surface_table  # noqa: E402
from gateway.surfaces.blueprints import compile_rules  # noqa: E402
from gateway.surfaces.web.request_targets import Addresses  # noqa: E402
from gateway.worker import accepted_configuration  # noqa: E402

MAX_LENGTH = 1 << 20  # bytes of a message
DESCRIPTORS = 4
MAX_OPEN = 4096  # above every open descriptor of this process
# Without gevent's event loop, which must not start before the fork.
fork, poll = get_original("os", "fork"), get_original("select", "poll")

PROGRAMS: dict[str, Callable[[], Any]] = {
    "gateway.operator.command": manage.run,
    "llmgateway-manage": manage.command,
    "gateway.server.launch": launch.main,
    "gunicorn": wsgiapp.run,
}
# Modules of commands, which no LazyImport names.
COMMANDS = tuple(f"gateway.operator.{module}" for module, _, _ in manage.COMMANDS.values())
# A program shares memory with its children only, and with no other program.
SHARED: tuple[Any, ...] = (accepted_configuration.refusal, boot.ready_count)


def count_shared() -> int:
    """Return the number of writable memory mappings that a fork would share."""
    return sum(line.split()[1] == "rw-s" for line in Path("/proc/self/maps").read_text().splitlines())


def import_late() -> None:
    """Import the modules that programs import on first use, so that no program does."""
    prepared.import_late()
    for name in COMMANDS:
        importlib.import_module(name)


def know_addresses() -> None:
    """Fill the caches of address and client patterns, which every gateway uses."""
    compile_rules(surface_table.SURFACES)
    # Python caches the compiled patterns.
    Addresses(operation.path for operation in surface_table.operations())
    known_clients()


def serve(control: Any) -> None:
    """Fork a program for each message until the socket is closed. Returns in the programs as well."""
    waiting = poll()
    waiting.register(control, POLLIN)
    lines: dict[int, tuple[int, int]] = {}  # process id and reporting socket, by the pidfd of a program
    while True:
        for ready, _ in waiting.poll():
            if ready in lines:
                waiting.unregister(ready)
                tell_end(*lines.pop(ready))
                os.close(ready)
                continue
            size = _socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
            data, ancillary, _, _ = control.recvmsg(MAX_LENGTH, size)
            if not data:
                return
            handles = array.array("i")
            handles.frombytes(ancillary[0][2])
            output, errors, line, *given_input = handles
            program = fork()
            if program == 0:
                for one in given_input:
                    os.dup2(one, 0)
                become(json.loads(data), output, errors)
                return
            os.setpgid(program, program)  # here too, since a test may kill the group at once
            for one in (output, errors, *given_input):
                os.close(one)
            os.write(line, b"%d\n" % program)
            end = os.pidfd_open(program)
            lines[end] = program, line
            waiting.register(end, POLLIN)


def tell_end(program: int, line: int) -> None:
    """Reap a program and report its exit status. This process is its parent; the tests are not."""
    _, status = os.waitpid(program, 0)
    try:
        os.write(line, b"%d\n" % os.waitstatus_to_exitcode(status))
    except OSError:  # the process that started it has ended
        pass
    os.close(line)


def become(given: dict[str, Any], output: int, errors: int) -> None:
    """Become the program in this process."""
    gc.enable()
    os.setpgid(0, 0)  # a test kills the program with everything that it started
    leftovers.end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.closerange(3, MAX_OPEN)
    os.chdir(given["folder"])
    sys.path[:2] = [given["folder"], str(ROOT)]  # as for `python -m`
    for one in SHARED:
        one.__init__()
    words, environment = given["words"], given["environment"]
    if "serve" in words:
        words, environment = executed(words, environment)
    run(words, environment)


def executed(words: list[str], environment: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of the exec call with which the program would replace itself. A child determines them, so
    that this process stays unchanged. Exits with the child's status if it calls no exec."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        os.close(reading)

        def execve(path: str, command: list[str], then: dict[str, str]) -> NoReturn:
            with open(writing, "w") as told:
                json.dump([command[2:], then], told)
            os._exit(0)

        os.execve = execve  # type: ignore[assignment]
        run(words, environment)
    os.close(writing)
    with open(reading) as told:
        found = told.read()
    _, status = os.waitpid(child, 0)
    if not found:
        sys.exit(os.waitstatus_to_exitcode(status))
    return json.loads(found)


def run(words: list[str], environment: dict[str, str]) -> NoReturn:
    """Run the module words[0] with the following arguments; does not return."""
    os.environ.clear()
    os.environ.update(environment)
    program = PROGRAMS[words[0]]
    sys.argv = [str(sys.modules[program.__module__].__file__), *words[1:]]
    end_with(program)


if __name__ == "__main__":
    assert count_shared() == len(SHARED), "a fork would share memory that SHARED does not name"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when the socket is closed
    leftovers.end_with_parent()
    cheap_disks.make_cheap()
    cheap_passwords.make_cheap()
    import_late()
    prepared.keep_catalogue()
    prepared.keep_fingerprints()
    know_addresses()
    gc.collect()
    gc.freeze()
    told = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, int(sys.argv[1]))
    told.setblocking(True)
    serve(told)
