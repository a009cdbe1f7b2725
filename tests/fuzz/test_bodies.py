"""Bodies of every paid operation, changed anywhere: served by the sandbox or refused in the envelope."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gateways import LocalGateway, local_gateway
from support.spending import BODIES, FORMS, SECOND_OF_SOUND, TOOLS, say_in_headers

from gateway.configuration import settings as settings_module

# Each goes through the whole gateway: a tenth of what the readers alone are tried with.
EXAMPLES = settings().max_examples // 5
# The sandbox's model for each operation other than chat. Chats use one with answers that are not inspected.
MODELS = {
    "/v1/embeddings": "sandbox-embed",
    "/v1/embed": "sandbox-embed",
    "/v2/embed": "sandbox-embed",
    "/v1/audio/speech": "sandbox-speak",
    "/v1/images/generations": "sandbox-image",
    "/v1/images/edits": "sandbox-image",
    "/v1/rerank": "sandbox-rerank",
    "/v1/moderations": "sandbox-moderate",
    "/v1/ocr": "sandbox-read",
    "/v1/systemone": "sandbox-decide",
    **dict.fromkeys(FORMS, "sandbox-transcribe"),
}
TEXTS = st.sampled_from(
    ["", "a", "é\u2028", "\0", "auto", "json", "1024x1024", "data:image/png;base64,AAAA", "data:,x"]
)
NUMBERS = st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, -1, 0.5, 1e308, 10**19])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
FIELDS = (
    *("n", "size", "stream", "voice", "response_format", "top_n", "dimensions", "encoding_format", "quality", "pages"),
    *(
        "return_documents",
        "speed",
        "instructions",
        "input",
        "prompt",
        "model",
        "routing",
        "user",
        "max_tokens",
        "tools",
    ),
    *("questions", "documents", "query", "document", "images", "mask", "background", "metadata", "temperature", "stop"),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)
CHANGES = st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=5), VALUES), max_size=3)
MORE = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=2)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path_factory.mktemp("fuzz"))}
    base |= {"GATEWAY_BOOTSTRAP_CREDITS_USD": "unlimited"}
    with local_gateway(lambda **more: settings_module.load(base | more)) as running:
        yield running


def put(body: Any, steps: list[int], value: Any) -> Any:
    """The body with `value` at the place that the steps lead to."""
    if not steps or not isinstance(body, dict | list) or not body:
        return value
    at = list(body)[steps[0] % len(body)] if isinstance(body, dict) else steps[0] % len(body)
    body[at] = put(body[at], steps[1:], value)
    return body


def check(answer: Any) -> None:
    """Check that the request was served or refused as the caller's fault, in JSON with a code."""
    text = answer.get_data()
    assert answer.status_code < 500, (answer.status_code, text[:500])
    if answer.status_code >= 400:
        body = json.loads(text)
        error = body.get("error", body)  # in one dialect the body is the error
        assert isinstance(error, dict) and error["message"] and error.get("code", "x") != "", body


@pytest.mark.parametrize("path", sorted(BODIES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=EXAMPLES)
@given(changes=CHANGES, more=MORE)
def test_a_body_that_was_changed_anywhere_is_served_or_refused(
    gateway: LocalGateway, path: str, changes: list[tuple[list[int], Any]], more: dict[str, Any]
) -> None:
    good = copy.deepcopy(BODIES[path]("hello"))
    body = good if path == TOOLS else {**good, "model": f"sandbox/{MODELS.get(path, 'sandbox-echo')}"}
    body |= {} if path == TOOLS else more
    for steps, value in changes:
        body = put(body, steps, copy.deepcopy(value))
    headers = {"Authorization": f"Bearer {gateway.key}"}
    if "/ai/" in path:
        headers |= say_in_headers(path, {"model": "sandbox/sandbox-echo", "stream": False})
    if path == TOOLS:
        headers |= {"Accept": "application/json, text/event-stream"}
    client = gateway.app.flask.test_client(use_cookies=False)
    check(client.post(path, data=json.dumps(body), content_type="application/json", headers=headers))


@pytest.mark.parametrize("path", sorted(FORMS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=EXAMPLES)
@given(
    more=st.dictionaries(st.sampled_from(FIELDS), TEXTS, max_size=3), spoilt=st.binary(max_size=60), at=st.integers(0)
)
def test_a_form_with_a_spoilt_sound_is_served_or_refused(
    gateway: LocalGateway, path: str, more: dict[str, str], spoilt: bytes, at: int
) -> None:
    at %= 100
    sound = SECOND_OF_SOUND[:at] + spoilt + SECOND_OF_SOUND[at + len(spoilt) :]
    edge = "edge-of-the-fuzz"
    fields = {"model": "sandbox/sandbox-transcribe", **more}
    raw = "".join(
        f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()
    ).encode()
    raw += f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'.encode()
    raw += sound + f"\r\n--{edge}--\r\n".encode()
    client = gateway.app.flask.test_client(use_cookies=False)
    headers = {"Authorization": f"Bearer {gateway.key}"}
    check(client.post(path, data=raw, content_type=f"multipart/form-data; boundary={edge}", headers=headers))
