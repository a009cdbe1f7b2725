"""Callbacks of video jobs: signed, repeated until they are accepted, and to public addresses alone."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.server import serving
from standardwebhooks import Webhook
from support.gateways import LocalGateway
from support.shared import Share
from support.videos import MODEL, REFUSED, SOON, begin, call, end_of, films_of

from gateway.accounts.projects import callback_secret
from gateway.jobs.callbacks import DELIVERED, FAILED, RETRYING, Callback

OWN = "the caller's own secret"


class Receiver:
    """Records what comes; answers with the statuses of `answers` in turn, then with 200."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.calls: list[tuple[dict[str, str], bytes]] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        headers = {name[5:].lower(): value for name, value in environ.items() if name.startswith("HTTP_WEBHOOK")}
        self.calls.append((headers, environ["wsgi.input"].read()))
        start(self.answers.pop(0) if self.answers else "200 OK", [("Location", "http://127.0.0.1:1/")])
        return [b""]


@pytest.fixture
def gateway(share: Share) -> LocalGateway:
    return films_of(share)


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def address(receiver: Receiver) -> Iterator[str]:
    with serving(receiver) as running:
        yield f"{running}/films"


def deliver(gateway: LocalGateway, ident: str) -> Callback:
    """One round of deliveries, now that the next attempt is due; the callback after it."""
    videos = gateway.services.engine.videos
    waiting = videos.callbacks.of(ident)
    assert waiting is not None
    if waiting.due_at is not None:
        videos.callbacks.database.write(lambda: videos.callbacks.change(waiting, due_at=1))
    videos.deliveries.run()
    after = videos.callbacks.of(ident)
    assert after is not None
    return after


def check(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As a receiver does it that takes the secret as it is written."""
    signed = b"%b.%b.%b" % (headers["webhook_id"].encode(), headers["webhook_timestamp"].encode(), body)
    expected = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in headers["webhook_signature"].split(" ")


def test_the_callback_of_a_video_is_delivered_after_five_failures(gateway, receiver, address):
    receiver.answers = ["500 Broken"] * 5
    job = begin(gateway, SOON, callback_url=address, callback_secret=OWN)
    assert gateway.services.engine.videos.callbacks.of(job["id"]) is None
    done = end_of(gateway, job["id"])
    states = [deliver(gateway, job["id"]).state for _ in range(6)]
    assert states == [RETRYING] * 5 + [DELIVERED]
    assert {headers["webhook_id"] for headers, _ in receiver.calls} == {f"evt_{job['id']}"}
    assert all(check(OWN, *call) for call in receiver.calls)
    event = json.loads(receiver.calls[-1][1])
    assert (event["object"], event["id"], event["type"]) == ("event", f"evt_{job['id']}", "video.completed")
    linked = event["data"].pop("content"), done.pop("content")
    assert event["data"] == done
    assert call(gateway, "GET", linked[0][0]["url"].removeprefix(gateway.url), "").status_code == 200
    tried = deliver(gateway, job["id"]).tried
    assert [one.status for one in tried] == [500] * 5 + [200] and len(receiver.calls) == 6


def test_the_callback_of_a_failed_video_is_signed_with_the_project_secret(gateway, receiver, address):
    job = begin(gateway, REFUSED, callback_url=address)
    end_of(gateway, job["id"])
    deliver(gateway, job["id"])
    secret = callback_secret(gateway.services.store.database, gateway.services.store.vault, gateway.project_id)
    assert secret.startswith("whsec_") and check(secret, *receiver.calls[0])
    headers = {name.replace("_", "-"): value for name, value in receiver.calls[0][0].items()}
    assert Webhook(secret).verify(receiver.calls[0][1], headers)["data"]["id"] == job["id"]
    event = json.loads(receiver.calls[0][1])
    assert (event["type"], event["data"]["status"]) == ("video.failed", "failed")


def test_waits_between_attempts_double_and_the_eighth_is_the_last(gateway, receiver, address):
    receiver.answers = ["503 Away"] * 9
    job = begin(gateway, callback_url=address)
    end_of(gateway, job["id"])
    waits = []
    for _ in range(7):
        after = deliver(gateway, job["id"])
        waits.append(round((after.due_at - gateway.services.clock.now_us()) / 1e6))
    assert waits == [30, 60, 120, 240, 480, 960, 1920]
    last = deliver(gateway, job["id"])
    assert (last.state, last.due_at, len(last.tried)) == (FAILED, None, 8)


def test_a_redirect_of_a_callback_is_not_followed(gateway, receiver, address):
    receiver.answers = ["307 Elsewhere"]
    job = begin(gateway, callback_url=address)
    end_of(gateway, job["id"])
    after = deliver(gateway, job["id"])
    assert (after.state, after.tried[0].status, len(receiver.calls)) == (RETRYING, 307, 1)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x", "http://localhost/x", "http://169.254.169.254/x", "http://10.1/"]
)
def test_a_callback_into_a_private_network_is_refused(share, url):
    gateway = films_of(share, GATEWAY_ALLOW_PRIVATE_UPSTREAMS="false")
    answer = call(gateway, "POST", "/videos", json={"model": MODEL, "prompt": SOON, "callback_url": url})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "address_not_allowed")


def test_two_workers_send_one_callback_once(gateway, receiver, address):
    job = begin(gateway, callback_url=address)
    end_of(gateway, job["id"])
    videos = gateway.services.engine.videos
    callback = videos.callbacks.of(job["id"])
    for _ in range(2):
        videos.deliveries._follow(callback)
    assert len(receiver.calls) == 1


def test_a_project_with_many_callbacks_keeps_none_of_another_waiting(share, address):
    many, other_gateway = films_of(share), films_of(share)
    waiting = [begin(many, callback_url=address)["id"] for _ in range(3)]
    waiting.append(begin(other_gateway, callback_url=address)["id"])
    for owner, ident in zip((many, many, many, other_gateway), waiting, strict=True):
        end_of(owner, ident)
    callbacks = other_gateway.services.engine.videos.callbacks
    due = [(project, callback.job) for project, callback in callbacks.due(other_gateway.services.clock.now_us(), 2, 3)]
    first, second, _, other = waiting
    assert due == [(many.project_id, first), (other_gateway.project_id, other), (many.project_id, second)]


def test_a_video_that_is_deleted_leaves_no_callback(gateway, receiver, address):
    job = begin(gateway, callback_url=address)
    end_of(gateway, job["id"])
    assert call(gateway, "DELETE", f"/videos/{job['id']}").json()["deleted"]
    assert gateway.services.engine.videos.callbacks.of(job["id"]) is None
