"""The Flask application is built by the first request that needs it, and by no other."""

from types import SimpleNamespace

import gevent
import pytest
from werkzeug.test import Client

from gateway.application import app
from gateway.application.app import OnDemandApplication


@pytest.fixture
def builds(monkeypatch):
    """Return the list of applications that are built, each after a turn of the event loop."""
    found = []

    class Built:
        def __init__(self, services, addresses):
            gevent.sleep(0)
            found.append(self)

        def wsgi(self, environ, start_response):
            start_response("200 OK", [])
            return [b"flask"]

    monkeypatch.setattr(app, "flask_application", SimpleNamespace(prepare=list, FlaskApplication=Built))
    return found


def test_concurrent_first_requests_share_one_application(builds):
    client = Client(OnDemandApplication(None, ()))
    assert builds == []
    answers = [gevent.spawn(client.get, "/console") for _ in range(3)]
    assert [answer.get().text for answer in answers] == ["flask"] * 3
    assert client.get("/console").text == "flask"
    assert len(builds) == 1


def test_a_failed_build_is_repeated_by_the_next_request(builds, monkeypatch):
    application = OnDemandApplication(None, ())
    with monkeypatch.context() as patched:
        patched.setattr(app.flask_application, "prepare", lambda surfaces: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            application.get()
    assert application.get() is builds[0]
