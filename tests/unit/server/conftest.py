import pytest
from gevent.socket import socketpair
from support.small_server import GRACE_S, Server

from gateway.clock import Clock
from gateway.server.connection import CallerConnection, WorkerState


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One for all tests that do not end it; idle connections live two seconds."""
    made = Server(
        tmp_path_factory.mktemp("server"), GATEWAY_SERVER_KEEPALIVE_S="2", GATEWAY_SERVER_GRACEFUL_TIMEOUT_S="2"
    )
    yield made
    made.stop()


@pytest.fixture
def leaving_server(tmp_path):
    """One to be ended, with GRACE_S of grace."""
    made = Server(tmp_path, GATEWAY_SERVER_GRACEFUL_TIMEOUT_S=str(GRACE_S))
    yield made
    made.stop()


@pytest.fixture
def hasty_server(tmp_path):
    """One that cuts what is open after a grace of four seconds."""
    made = Server(tmp_path, GATEWAY_SERVER_GRACEFUL_TIMEOUT_S="4")
    yield made
    made.stop()


@pytest.fixture
def caller(server):
    made = server.call()
    yield made
    made.close()


@pytest.fixture
def pair():
    """A connection of the worker, and its caller's socket."""
    ours, theirs = socketpair()
    connection = CallerConnection(ours, "", WorkerState(Clock()))
    yield connection, theirs
    connection.close()
    theirs.close()
