"""The WSGI applications that a real gunicorn serves in these tests; they write what they saw to a file."""

import os
import time

import gevent
from flask import Flask
from flask_sock import Sock

PLAIN = [("Content-Type", "text/plain")]


def record(line):
    with open(os.environ["SERVED_LOG"], "a") as log:
        log.write(f"{line}\n")


class Recorded:
    """An iterator that says when it was closed."""

    def __init__(self, items, name):
        self.items, self.name = items, name

    def __iter__(self):
        return self.items

    def close(self):
        if hasattr(self.items, "close"):
            self.items.close()
        record(f"closed {self.name}")


def echo(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", PLAIN)
    names = ",".join(sorted(key for key in environ if key.startswith("HTTP_X")))
    lines = [environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], names]
    return [" ".join(lines).encode() + b"\n" + body]


def size(environ, start_response):
    start_response("200 OK", PLAIN)
    return [f"{len(environ['wsgi.input'].read())} {environ['CONTENT_LENGTH']}".encode()]


def stream(environ, start_response):
    count, gap = (float(part) for part in environ["QUERY_STRING"].split(","))
    start_response("200 OK", PLAIN)

    def items():
        try:
            for number in range(int(count)):
                yield b"item %d\n" % number
                gevent.sleep(gap)
        except BaseException as error:
            record(f"cut {type(error).__name__}")
            raise

    return Recorded(items(), "stream")


def late_first(environ, start_response):
    start_response("200 OK", PLAIN)

    def items():
        gevent.sleep(float(environ["QUERY_STRING"]))
        yield b"late"

    return items()


def silent(environ, start_response):
    record(f"began {time.monotonic()}")
    try:
        gevent.sleep(float(environ["QUERY_STRING"] or 30))
    except BaseException as error:
        record(f"{type(error).__name__} {time.monotonic()}")
        raise
    finally:
        gevent.sleep(0.05)
        record("settled")
    start_response("200 OK", PLAIN)
    return [b"done"]


def crash(environ, start_response):
    raise OSError("the application's own trouble")


def crash_late(environ, start_response):
    start_response("200 OK", PLAIN)

    def items():
        yield b"part"
        raise RuntimeError("late")

    return Recorded(items(), "crash_late")


def replace(environ, start_response):
    start_response("200 OK", PLAIN)
    try:
        raise ValueError("second thoughts")
    except ValueError as error:
        start_response("503 Service Unavailable", PLAIN, (ValueError, error, error.__traceback__))
    return [b"replaced"]


def split(environ, start_response):
    start_response("200 OK", [("X-Bad", "a\r\nX-Injected: b")])
    return [b""]


def declared(environ, start_response):
    length, items = environ["QUERY_STRING"].split(",")
    start_response("200 OK", [*PLAIN, ("Content-Length", length)])
    return Recorded(iter([b"x" * int(items)] * 2), "declared")


def status(environ, start_response):
    start_response(f"{environ['QUERY_STRING']} Some", [*PLAIN, ("Content-Length", "4")])
    return Recorded(iter([b"body"]), "status")


def lazy(environ, start_response):
    start_response("200 OK", PLAIN)
    yield b"lazy"


def written(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"one")
    return [b"two"]


def ready(environ, start_response):
    start_response("503 Draining" if app.leaving else "200 OK", PLAIN)
    return [b""]


def scheme(environ, start_response):
    start_response("200 OK", PLAIN)
    return [environ["wsgi.url_scheme"].encode()]


class Rounds:
    """Counts the rounds of the event loop since the first call."""

    def __init__(self):
        self.count = 0
        self._watcher = None

    def start(self):
        if self._watcher is None:
            self._watcher = gevent.get_hub().loop.check()
            self._watcher.start(self._add)

    def _add(self):
        self.count += 1


rounds = Rounds()


def hold(environ, start_response):
    """Hold the event loop for the given time; answer the round in which this call began."""
    rounds.start()
    began_in = rounds.count
    seconds = float(environ["QUERY_STRING"])
    if seconds:
        record("holding")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        continue
    start_response("200 OK", PLAIN)
    return [b"%d" % began_in]


flask_app = Flask(__name__)
sock = Sock(flask_app)


@sock.route("/socket")
def socket_echo(ws):
    try:
        while True:
            ws.send(ws.receive())
    finally:
        record("socket ended")


ROUTES = {f"/{view.__name__}": view for view in (echo, size, stream, silent, crash, crash_late, replace, split)}
ROUTES |= {f"/{view.__name__}": view for view in (declared, status, lazy, late_first, written, ready, scheme, hold)}


class Application:
    """The interface that the gateway's own callable offers a worker."""

    max_body = 300_000
    leaving = False

    def __call__(self, environ, start_response):
        return ROUTES.get(environ["PATH_INFO"], flask_app)(environ, start_response)

    def draining(self, leaving):
        self.leaving = leaving
        record("draining")

    def close(self):
        record("application closed")


app = Application()
