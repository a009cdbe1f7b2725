"""Video tasks in every protocol, over strict fakes: start, status, refusal, download and cancellation."""

import io
import json
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import pytest
from fakes.video_services import FILM, KEY, MADE_SECONDS, OPERATION, TOKENS, FakeVideoServices
from support.replies import MemoryReply, json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.clock import Clock
from gateway.errors import (
    ContentRefused,
    GatewayError,
    NotSupported,
    UpstreamFailed,
    UpstreamRefused,
)
from gateway.neutral.images import Picture
from gateway.neutral.request import Requirements
from gateway.neutral.videos import CONTENT_FILTER, VideoFile, VideosInput, VideosRequest
from gateway.providers.media_codecs import FAILED
from gateway.providers.protocol import Call, Credential, Target
from gateway.providers.registry import FACTORIES, Resources
from gateway.runtime.large_files import StoredFile, whole

HOST = "https://fake.example"
PNG = Picture(StoredFile.of(b"\x89PNG\r\n\x1a\n" + b"1" * 40), "image/png")
FRAMES = {"vision": True, "extra": {"last_frame": True, "reference_images": 3}}
# The forms of every protocol: protocol, base path, external model id, fields of the mapping.
WAYS = {
    "openai": ("openai", "/v1", "sora-2", {"vision": True}),
    "vertex": (
        "google",
        "/vertex/v1/projects/p/locations/us-central1/publishers/google",
        "veo-3.1-generate-001",
        {"video_audio": True, "video_without_audio": True, **FRAMES},
    ),
    "xai": ("xai", "/xai/v1", "grok-imagine-video", {"vision": True, "extra": {"reference_images": 7}}),
    "bytedance": ("bytedance", "/ark/api/v3", "seedance-1-5-pro", {"video_audio": True, "vision": True, **FRAMES}),
    "alibaba": ("dashscope", "/qwen/compatible-mode/v1", "wan3.0-video", FRAMES),
    "minimax": ("minimax", "/minimax/v1", "MiniMax-H3", {**FRAMES, "video_sizes": ("1366x768",)}),
    "hailuo": (
        "minimax",
        "/minimax/v1",
        "MiniMax-Hailuo-2.3",
        {"vision": True, "video_sizes": ("1366x768",), "extra": {"video_form": "v1", "last_frame": True}},
    ),
    "atlas": ("atlascloud", "/atlas/api/v1", "acme/film", FRAMES),
}
EVERY_WAY = pytest.mark.parametrize("way", list(WAYS))
WIRES = {
    name: FACTORIES[name](Resources(None, Clock(), lambda secret: secret))  # type: ignore[arg-type]
    for name in {way[0] for way in WAYS.values()}
}


@pytest.fixture
def services():
    fake = FakeVideoServices()
    fake.films = "https://cdn.example"
    return fake


class Client:
    """A provider as the gateway meets it: its codec, its target, its fake."""

    def __init__(self, way: str, fake: FakeVideoServices | None = None, secret: str = KEY) -> None:
        protocol, base, external_id, more = WAYS[way]
        self.wire, self.fake = WIRES[protocol], fake
        self.codec = self.wire.codecs["videos"]
        provider = Provider("acme", "Acme", protocol, auth="bearer", settings={"token_type": "x"})
        mapping = Mapping("acme", "film", external_id, operations=("videos",), **more)
        settings = {"token_type": "oauth"} if protocol == "google" else {}
        self.target = Target(provider, mapping, Credential(secret), HOST + base, settings)

    def ask(self, call: Call) -> MemoryReply:
        """Send a call to the fake, without a network."""
        assert KEY not in call.url
        place, body, events = urlsplit(call.url), whole(call.body), []
        environ = {
            "REQUEST_METHOD": call.method,
            "PATH_INFO": unquote(place.path),
            "QUERY_STRING": place.query,
            "CONTENT_TYPE": call.headers.get("content-type", ""),
            "HTTP_AUTHORIZATION": call.headers.get("authorization"),
            "HTTP_X_DASHSCOPE_ASYNC": call.headers.get("x-dashscope-async"),
            "wsgi.input": io.BytesIO(body),
        }
        pieces = self.fake.serve(environ, lambda status, headers: events.append((status, headers)))
        status, headers = events[0]
        named = {name.lower(): value for name, value in headers}
        return MemoryReply(*pieces, headers=named, status=int(status.split()[0]))

    def checked(self, call: Call) -> MemoryReply:
        reply = self.ask(call)
        if not 200 <= reply.status < 300:
            raise self.wire.failure(reply, self.target)
        return reply

    def write(self, **wish: object) -> Call:
        given = VideosInput("a cat on a wall", **wish)
        return self.codec.write(VideosRequest("film", Requirements(), lambda: given), self.target)

    def begin(self, **wish: object) -> str:
        return self.codec.read(self.checked(self.write(**wish)), False).ident

    def status(self, ident: str):
        return self.codec.read_status(self.checked(self.codec.status(ident, self.target)), self.target)

    def finish(self, **wish: object):
        ident = self.begin(**wish)
        return [self.status(ident) for _ in range(3)][-1]


@EVERY_WAY
def test_a_video_is_begun_waited_for_and_found(way, services):
    client = Client(way, services)
    ident = client.begin()
    first, second, done = [client.status(ident) for _ in range(3)]
    assert first.state in ("queued", "in_progress") and second.state == "in_progress"
    assert not first.is_final and 0 <= second.progress < 100
    assert (done.state, done.progress, done.is_final) == ("completed", 100, True)
    (file,) = done.files
    assert file.media_type == "video/mp4"
    if file.data is not None:
        assert file.data.read_all() == FILM
    elif file.url:
        assert file.url == "https://cdn.example/films/1.mp4"
    else:
        reply = client.checked(client.codec.content(file, client.target))
        place = client.codec.location(reply, client.target)
        assert place == "https://cdn.example/films/1.mp4" or (place == "" and reply.read_all() == FILM)


@pytest.mark.parametrize("way", ["vertex", "bytedance", "alibaba", "minimax", "hailuo", "xai", "openai", "atlas"])
def test_an_image_is_the_first_frame(way, services):
    assert Client(way, services).finish(first_frame=PNG).state == "completed"
    asked = services.calls[0]
    sent = json.dumps(asked.body)
    assert "iVBORw0KGgo" in sent or asked.files["input_reference"] == PNG.file.read_all()


@pytest.mark.parametrize("way", ["vertex", "bytedance", "alibaba", "minimax", "xai"])
def test_images_are_references(way, services):
    assert Client(way, services).finish(reference_images=(PNG, PNG)).state == "completed"
    assert json.dumps(services.calls[0].body).count("iVBORw0KGgo") == 2


@EVERY_WAY
@pytest.mark.parametrize("name", ["last_frame", "reference_images", "reference_videos", "reference_audios"])
def test_options_without_a_field_are_refused_even_if_the_mapping_lists_them(way, name, services):
    client = Client(way, services)
    everything = {"last_frame": True, "reference_images": 3, "reference_videos": 3, "reference_audios": 3}
    extra = {**client.target.mapping.extra, **everything}
    client.target = replace(client.target, mapping=replace(client.target.mapping, extra=extra, vision=True))
    given = {"last_frame": PNG, "reference_images": (PNG,)}.get(name, ("https://a.example/b",))
    wish = {name: given} | ({"first_frame": PNG} if name == "last_frame" else {})
    try:
        call = client.write(**wish)
    except NotSupported as error:
        assert error.param == name
        return
    client.checked(call)
    sent = json.dumps(services.calls[0].body)
    assert sent.count("iVBORw0KGgo") + sent.count("https://a.example/b") == len(wish)


@EVERY_WAY
def test_content_filter_refusals_differ_from_failures_and_neither_shows_the_key(way, services):
    services.ending = "refused"
    refused = Client(way, services).finish()
    assert (refused.state, refused.error_code, refused.files) == ("failed", CONTENT_FILTER, ())
    services.ending = "failed"
    failed = Client(way, services).finish()
    assert failed.state == "failed" and failed.error_code not in ("", CONTENT_FILTER) and failed.error_message
    assert KEY not in refused.error_message + failed.error_message


@EVERY_WAY
def test_a_wrong_key_is_the_gateways_fault_and_is_not_shown(way, services):
    with pytest.raises(UpstreamRefused) as refused:
        Client(way, services, "sk-another-key-000000").begin()
    assert KEY not in str(refused.value.details) + refused.value.message


@EVERY_WAY
def test_a_task_that_the_provider_does_not_know_is_an_error_or_expired(way, services):
    try:
        assert Client(way, services).status("nobody-1").state == "expired"
    except KeyError:
        assert way == "minimax"  # the fake's second version knows no unknown tasks
    except GatewayError as error:
        assert error.status < 500 or isinstance(error, UpstreamRefused | UpstreamFailed)


@pytest.mark.parametrize("way", ["openai", "bytedance", "alibaba"])
def test_a_task_that_waits_can_be_canceled(way, services):
    client = Client(way, services)
    ident = client.begin()
    call = client.codec.cancel(ident, client.target)
    assert 200 <= client.ask(call).status < 300
    assert client.status(ident).state == "canceled"


@pytest.mark.parametrize("way", ["bytedance", "alibaba"])
def test_a_task_that_has_begun_goes_on(way, services):
    client = Client(way, services)
    ident = client.begin()
    client.status(ident), client.status(ident)
    assert 400 <= client.ask(client.codec.cancel(ident, client.target)).status < 500
    assert client.status(ident).state == "completed"


@pytest.mark.parametrize("way", ["vertex", "xai", "minimax", "hailuo", "atlas"])
def test_a_provider_that_cannot_cancel_is_not_asked_to(way):
    client = Client(way)
    assert client.codec.cancel("x", client.target) is None


@pytest.mark.parametrize(
    ("way", "ending", "state"),
    [
        ("xai", "expired", "expired"),
        ("bytedance", "expired", "expired"),
        ("alibaba", "expired", "expired"),
        ("atlas", "expired", "expired"),
        ("vertex", "canceled", "canceled"),
        ("bytedance", "canceled", "canceled"),
        ("alibaba", "canceled", "canceled"),
        ("minimax", "canceled", "canceled"),
    ],
)
def test_other_end_states_are_named(way, ending, state, services):
    services.ending = ending
    assert Client(way, services).finish().state == state


def test_reported_usage_is_in_the_outcome(services):
    counted = {way: Client(way, services).finish() for way in WAYS}
    seconds = {way: one.video_ms for way, one in counted.items() if one.video_ms}
    assert seconds == dict.fromkeys(("openai", "xai", "bytedance", "alibaba", "minimax"), MADE_SECONDS * 1000)
    assert {way: one.tokens for way, one in counted.items() if one.tokens} == {"bytedance": TOKENS}


def test_resolution_ratio_length_and_sound_follow_the_requested_size(services):
    wish = {"seconds": 8, "size": "1080x1920", "audio": False}
    Client("vertex", services).begin(**wish)
    assert services.calls[-1].body["parameters"] == {
        "sampleCount": 1,
        "durationSeconds": 8,
        "aspectRatio": "9:16",
        "resolution": "1080p",
        "generateAudio": False,
    }
    Client("vertex", services).begin(seconds=8, size="1920x1080")
    assert services.calls[-1].body["parameters"]["aspectRatio"] == "16:9"
    Client("xai", services).begin(seconds=8, size="854x480")
    body = services.calls[-1].body
    assert (body["resolution"], body["aspect_ratio"], body["duration"]) == ("480p", "16:9", 8)
    Client("bytedance", services).begin(seconds=8, size="1920x1080")
    body = services.calls[-1].body
    assert (body["resolution"], body["ratio"], body["generate_audio"]) == ("1080p", "16:9", True)
    Client("alibaba", services).begin(seconds=8, size="720x1280")
    assert services.calls[-1].body["parameters"] == {
        "resolution": "720P",
        "ratio": "9:16",
        "duration": 8,
        "watermark": False,
    }


@pytest.mark.parametrize("way", ["xai", "bytedance", "alibaba", "minimax"])
def test_a_video_of_an_image_has_its_ratio_unless_a_size_was_named(way):
    client = Client(way)
    size = client.target.mapping.video_sizes[0] if client.target.mapping.video_sizes else "1280x720"
    free, fixed = (json.loads(whole(client.write(first_frame=PNG, **more).body)) for more in ({}, {"size": size}))
    ratios = [{**one, **one.get("parameters", {})} for one in (free, fixed)]
    ratios = [ratio.get("aspect_ratio", ratio.get("ratio")) for ratio in ratios]
    assert ratios[0] in (None, "adaptive")
    told = client.write(first_frame=PNG, size=size).warnings
    assert ratios[1] == "16:9" if way != "minimax" else "ratio" in told[0]


def test_an_unsupported_sound_option_is_named():
    for way in ("openai", "xai", "alibaba", "atlas"):
        (warning,) = Client(way).write(audio=False).warnings
        assert "audio" in warning
        assert not Client(way).write().warnings


def test_the_older_form_of_wan_has_a_size_in_pixels_or_one_image():
    client = Client("alibaba")
    older = replace(client.target.mapping, extra={"video_form": "size", "last_frame": True})
    client.target = replace(client.target, mapping=older)
    body = json.loads(whole(client.write(size="1280x720").body))
    assert body["parameters"]["size"] == "1280*720" and "media" not in body["input"]
    body = json.loads(whole(client.write(first_frame=PNG).body))
    assert body["input"]["img_url"].startswith("data:image/png;base64,") and "size" not in body["parameters"]


def test_a_video_in_the_operators_bucket_is_loaded_with_the_same_credential(services):
    services.stored = True
    client = Client("vertex", services)
    (file,) = client.finish().files
    call = client.codec.content(file, client.target)
    assert call.url == "https://storage.googleapis.com/storage/v1/b/bucket/o/a%20b%2Ffilm.mp4?alt=media"
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert client.begin() == OPERATION


def test_a_running_video_may_be_reported_without_a_body():
    client = Client("xai")
    assert client.codec.read_status(MemoryReply(b"", status=202), client.target).state == "in_progress"


@pytest.mark.parametrize(
    ("way", "wire", "code", "message"),
    [
        ("hailuo", {"status": "Fail", "base_resp": {"status_code": 0, "status_msg": "success"}}, "failed", FAILED),
        ("xai", {"status": "failed", "error": "It broke."}, "failed", "It broke."),
        ("xai", {"status": "failed", "code": "internal", "error": "It broke."}, "internal", "It broke."),
        ("vertex", {"done": True, "error": {"code": 13, "message": "It broke."}}, "13", "It broke."),
        ("openai", {"status": "failed", "error": None}, "failed", FAILED),
        ("alibaba", {"output": {"task_status": "UNKNOWN"}}, "expired", FAILED),
    ],
)
def test_a_failure_keeps_the_providers_message_if_there_is_one(way, wire, code, message):
    client = Client(way)
    found = client.codec.read_status(json_reply(wire), client.target)
    assert (found.error_code, found.error_message, found.files) == (code, message, ())


@pytest.mark.parametrize(
    ("way", "wire"),
    [
        ("bytedance", {"error": {"code": "InputTextSensitiveContentDetected", "message": "no"}}),
        ("alibaba", {"code": "DataInspectionFailed", "message": "Input data may contain inappropriate content."}),
        ("xai", {"code": "invalid-argument", "error": "Generated video violates our usage guidelines."}),
    ],
)
def test_a_prompt_that_a_filter_refuses_at_once_is_the_contents_fault(way, wire):
    client = Client(way)
    for status in (400, 403, 422):
        error = client.wire.failure(json_reply(wire, status), client.target)
        assert isinstance(error, ContentRefused) and error.code == CONTENT_FILTER
    for status in (429, 500, 503):  # whatever the words are, these are the provider's
        assert not isinstance(client.wire.failure(json_reply(wire, status), client.target), ContentRefused)


ODD = [
    b"",
    b"<html><body>Bad gateway</body></html>",
    b"null",
    b"[]",
    b'"queued"',
    b"{}",
    b'{"id":null,"task_id":{},"request_id":[],"name":7.5,"output":null,"data":null,"task":null}',
    b'{"output":{"task_id":null,"task_status":null},"data":{"id":"../x","status":[]},"id":"../../keys","status":9}',
    b'{"status":"done","video":"x","done":true,"response":null,"task":{"status":{}},"base_resp":[]}',
    b'{"status":"succeeded","content":{"video_url":"file:///etc/passwd"},"done":true,"response":{"videos":[{}]}}',
    b'{"status":"completed","id":"","done":true,"response":{"videos":[{"bytesBase64Encoded":"?"}]},"data":[]}',
    b'{"status":"unheard-of","done":false,"output":{"task_status":"unheard-of"},"task":{"status":"unheard-of"}}',
    b'{"status":"failed","error":["x"],"done":true,"error_message":{},"data":{"status":"failed","error":{"a":1}}}',
    b'{"status":"done","video":{"url":"javascript:alert(1)"},"done":true,"response":{"videos":[{"gcsUri":"gs://b"}]}}',
]


@EVERY_WAY
@pytest.mark.parametrize("body", ODD)
def test_an_odd_answer_is_a_clear_error_or_a_failed_task_and_never_anything_else(way, body):
    client = Client(way)
    for read in (
        lambda reply: client.codec.read(reply, False),
        lambda reply: client.codec.read_status(reply, client.target),
    ):
        try:
            found = read(MemoryReply(body, headers={"content-type": "application/json"}))
        except UpstreamFailed as error:
            assert error.message and "etc/passwd" not in error.message
            continue
        state = getattr(found, "state", "")
        assert state in ("failed", "") and (state or found.ident)
        assert ".." not in getattr(found, "ident", "")


@EVERY_WAY
def test_an_address_of_a_page_is_no_video(way):
    client = Client(way)
    page = MemoryReply(b"<html>", headers={"content-type": "text/html"})
    with pytest.raises(UpstreamFailed):
        client.codec.location(page, client.target)


def test_ids_of_rows_cannot_leave_their_place_in_an_address():
    for way in WAYS:
        client = Client(way)
        assert "/../" not in client.codec.status("a/../../keys", client.target).url
    call = Client("openai").codec.content(VideoFile(file="a/b?x=1"), Client("openai").target)
    assert call.url == f"{HOST}/v1/videos/a%2Fb%3Fx%3D1/content"
