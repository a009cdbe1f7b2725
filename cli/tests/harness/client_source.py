"""The process that runs of the client are forked from. It has imported the client's modules and does nothing else.

It runs as a script; its argument is the descriptor of a socket. A message on the socket has arguments, environment and
folder as JSON, and four descriptors: standard input, output and error, and a socket that receives the process id and
later the exit status. An input that is a terminal becomes the controlling terminal.
"""

import array
import fcntl
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import termios
from pathlib import Path
from typing import Any, NoReturn

MAX_LENGTH = 1 << 20  # bytes of a message
DESCRIPTORS = 4
MAX_OPEN = 1024


def serve(control: socket.socket) -> None:
    """Fork a run for each message until the socket is closed."""
    while True:
        size = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
        data, ancillary, _, _ = control.recvmsg(MAX_LENGTH, size)
        if not data:
            return
        handles = array.array("i")
        handles.frombytes(ancillary[0][2])
        if os.fork() == 0:
            mind(json.loads(data), list(handles))
        for handle in handles:
            os.close(handle)


def mind(given: dict[str, Any], handles: list[int]) -> NoReturn:
    """Start the run as a child of this process, and report its id and its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, line = handles
    program = os.fork()
    if program == 0:
        become(given, streams)
    for stream in streams:
        os.close(stream)
    try:
        os.write(line, b"%d\n" % program)
        _, status = os.waitpid(program, 0)
        os.write(line, b"%d\n" % os.waitstatus_to_exitcode(status))
    finally:
        os._exit(0)


def become(given: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run the client in this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored, and a shell cannot trap it then
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, MAX_OPEN)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", buffering=1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    sys.argv = ["llmgateway", *given["arguments"]]
    code = 1
    try:
        importlib.import_module("llmgateway_cli.main").entry()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        for stream_file in (sys.stdout, sys.stderr):
            try:
                stream_file.flush()
            except OSError:
                pass
        os._exit(code)


def import_all() -> None:
    """Import every module of the client except the one that runs it."""
    package = importlib.import_module("llmgateway_cli")
    for module in pkgutil.walk_packages(package.__path__, "llmgateway_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    sys.path[:1] = [str(Path(__file__).resolve().parents[2])]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    import_all()
    messages = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, int(sys.argv[1]))
    messages.setblocking(True)
    serve(messages)
