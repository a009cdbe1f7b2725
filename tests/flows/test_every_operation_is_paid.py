"""Requests of images, sound, vectors, documents and videos with any member that the vendors know: refused, or reserved
and billed at least as a strict vendor bills them, whole, streamed, and left after any piece.

The platform's provider keys pay, so no object of the platform's account may be reached.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fakes.strict_services import ServiceCall, StrictServices
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support import sdk_samples as sdk
from support.gateways import LocalGateway
from support.operation_samples import BOOK, OPERATIONS, Sample, as_form, draw_sample, sound_of
from support.shared import Share
from support.spending import settled_rows
from support.videos import end_of

from gateway.metering.models import CAPPED, OVERRUN

Json = dict[str, Any]
EXAMPLES = max(40, settings().max_examples)
BASES = {"OPENAI": "/v1", "GOOGLE_AI_STUDIO": "/v1beta", "XAI": "/v1", "MISTRAL": "/v1", "COHERE": "/v2"}
BASES |= {"JINA": "/v1", "VOYAGE": "/v1", "ELEVENLABS": "/v1", "GROQ": "/openai/v1"}
WAYS = ("whole", "streamed", "left")


def send(gateway: LocalGateway, sample: Sample, pieces: int) -> tuple[int, bytes]:
    """Send a request, and leave it after this many pieces of the answer (0: not); return what was read."""
    headers = {"Authorization": f"Bearer {gateway.key}"}
    address = gateway.address + sample.path
    if sample.form:
        request = httpx.Request("POST", address, headers=headers, data=as_form(sample.body), files=sample.files)
    else:
        request = httpx.Request("POST", address, headers=headers, json=sample.body)
    place = urlsplit(address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    connection.request("POST", sample.path, request.read(), dict(request.headers))
    answer = connection.getresponse()
    text = b""
    number = 0
    while piece := answer.read1(65536):
        text += piece
        number += 1
        if number == pieces and answer.status == 200:
            break
    answer.close()
    connection.close()
    return answer.status, text


def environment_of(services: StrictServices, **more: str) -> dict[str, str]:
    keys = {f"LLM_{name}_API_KEY": "sk-upstream" for name in BASES}
    return {**keys, **{f"LLM_{name}_BASE_URL": services.url + path for name, path in BASES.items()}, **more}


class Scene:
    """A gateway at the services, with the number of rows that were looked at."""

    def __init__(self, gateway: LocalGateway, services: StrictServices) -> None:
        self.gateway, self.services = gateway, services
        self.seen = 0

    def check(self, sample: Sample, way: str, pieces: int) -> None:
        self.services.calls.clear()
        if way != "whole":
            sample.body["stream"] = True
            if sample.path == "/v1/audio/speech":
                sample.body["stream_format"] = "sse"
        status, received = send(self.gateway, sample, pieces if way == "left" else 0)
        calls: list[ServiceCall] = list(self.services.calls)
        event(f"{sample.path} {status}")
        assert status < 500, (status, received, sample)
        if not calls:
            assert status != 200, (received, sample)
            return
        assert not any(call.stored for call in calls), ([call.stored for call in calls], sample)
        if sample.path == "/v1/videos":
            end_of(self.gateway, json.loads(received)["id"])
        rows = settled_rows(self.gateway, len(calls), self.seen)
        self.seen += len(rows)
        cost = sum(one[0] for one in rows)
        bill = sum(call.certain(received) if way == "left" else call.bill for call in calls)
        assert cost >= bill, (cost, bill, rows, sample, calls)
        assert not any(flags & OVERRUN for _, flags, _ in rows) or _may_overrun(sample), (rows, sample, calls)
        assert all("unpriced" not in extra for _, _, extra in rows), (rows, sample)


def _may_overrun(sample: Sample) -> bool:
    """Whether only the provider sees how much it is: an image at an address may be a document."""
    document = sample.body.get("document") or {}
    return document.get("type") == "image_url"


@pytest.fixture(params=["read on", "cancelled"])
def scene(request: pytest.FixtureRequest, share: Share) -> Iterator[Scene]:
    """Answers that are left are read on, or cancelled at once."""
    services = share.fake(StrictServices)
    drain = "20" if request.param == "read on" else "0"
    more = {"GATEWAY_METERING_DRAIN_S": drain, "GATEWAY_VIDEO_POLL_S": "3600"}
    gateway = share.gateway(environment_of(services, **more))
    gateway.app.background.stop()
    yield Scene(gateway, services)


@pytest.mark.extended
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_request_of_any_operation_is_refused_or_paid(scene: Scene, operation: str) -> None:
    ways = WAYS if OPERATIONS[operation].streams or "speech" in operation else ("whole",)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        draw: sdk.Draw = data.draw
        scene.check(draw_sample(draw, operation), draw(st.sampled_from(ways)), draw(st.integers(1, 6)))

    holds()


# A request of an operation, and the most that it can amount to in nano-dollars.
BELIEVED = {
    "ocr": ({"document": {"type": "document_url", "document_url": BOOK}}, 1_000 * 4_000_000),
    "rerank": ({"query": "tea", "documents": ["Green tea", "A spade"]}, 1_000 * 2_500_000),
    "translations": ({}, 100_000 * 86_400),
}


@pytest.mark.parametrize("operation", BELIEVED)
def test_an_absurd_count_of_units_is_billed_up_to_what_the_request_can_amount_to(share: Share, operation: str) -> None:
    services = share.fake(StrictServices)
    gateway = share.gateway(environment_of(services))
    body, most_nusd = BELIEVED[operation]
    known = OPERATIONS[operation]
    files = (("file", ("a.wav", sound_of(3.0))),) if known.form else ()
    sample = Sample(known.path, {"model": known.models[0], **body}, files, known.form)
    assert send(gateway, sample, 0)[0] == 200
    services.boast = 10**9
    assert send(gateway, sample, 0)[0] == 200
    [(honest, _, _), (cost, flags, _)] = settled_rows(gateway, 2, 0)
    assert honest == services.calls[0].bill <= cost <= most_nusd and flags & CAPPED
