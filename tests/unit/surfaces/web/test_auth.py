"""The cached sender of a request is used for identical headers only, and only while it is valid."""

from operator import attrgetter
from types import SimpleNamespace

import pytest

from gateway.callers.authentication import Caller
from gateway.clock import Clock
from gateway.errors import InvalidRequest, Unauthenticated, UnsupportedMediaType
from gateway.metering.sources import Sources
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web.http import Inbound, Sender

HEADERS = {"authorization": "Bearer t", "content-type": "application/json", "x-source": "shop.example"}


class Keys:
    """Authenticates callers by their tokens; `known` may be cleared at any time."""

    def __init__(self) -> None:
        self.known, self.asked = {"t": Caller("key_1", *[""] * 8)}, 0

    def caller(self, token: str) -> Caller:
        self.asked += 1
        if token not in self.known:
            raise Unauthenticated("Unknown.")
        return self.known[token]

    def holds(self, caller: Caller) -> bool:
        return caller in self.known.values()


@pytest.fixture
def services() -> SimpleNamespace:
    settings = SimpleNamespace(timeouts=SimpleNamespace(request_s=60.0))
    accounts = SimpleNamespace(authentication=Keys(), sources=Sources(()))
    telemetry = SimpleNamespace(tracing=None)
    routing = SimpleNamespace(transport=SimpleNamespace(loop_mark="this-gateway"))
    return SimpleNamespace(accounts=accounts, clock=Clock(), settings=settings, telemetry=telemetry, routing=routing)


def admit(services: SimpleNamespace, sender: Sender | None, **headers: str):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return auth_module.admit(services, Inbound("POST", "/v1/x", HEADERS | given, sender=sender), "chat")


def test_the_same_headers_are_looked_at_once(services):
    sender = Sender()
    first, again = admit(services, sender), admit(services, sender)
    assert services.accounts.authentication.asked == 1
    assert (again.caller, again.source) == (first.caller, "shop.example") and again.request_id != first.request_id


def test_a_caller_that_holds_no_more_is_refused_at_once(services):
    sender = Sender()
    admit(services, sender)
    services.accounts.authentication.known.clear()
    with pytest.raises(Unauthenticated):
        admit(services, sender)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(("x-request-id", "label"), ("x-no-cache", "options.no_cache"), ("x-no-fallback", "options.no_fallback")),
        *(("x-debug", "options.debug"), ("idempotency-key", "attribution"), ("x-llmgateway-team", "metadata")),
        *(("x-session-id", "session"), ("session-id", "session")),
    ],
)
def test_requests_with_options_are_authenticated_each_time(services, name, said):
    sender = Sender()
    for _ in range(2):
        assert attrgetter(said)(admit(services, sender, **{name: "true"}))
    assert services.accounts.authentication.asked == 2


def test_a_request_that_the_gateway_sent_to_itself_is_refused(services):
    with pytest.raises(InvalidRequest) as caught:
        admit(services, Sender(), **{"cdn-loop": "this-gateway"})
    assert caught.value.code == "request_loop"


def test_nothing_is_kept_of_a_request_that_was_refused(services):
    sender = Sender()
    with pytest.raises(UnsupportedMediaType):
        admit(services, sender, content_type="text/plain")
    assert sender.caller is None


def test_a_server_that_keeps_nothing_is_served_alike(services):
    assert admit(services, None).source == admit(services, Sender()).source == "shop.example"
