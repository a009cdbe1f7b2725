import copy
import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from gateway import errors
from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.metering.counters import Counters
from gateway.surfaces import surface_table
from gateway.surfaces.description import openapi as openapi_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web import policy as policy_module
from gateway.surfaces.web.http import Deprecated, Inbound, Operation
from gateway.surfaces.web.operation_guard import guard
from gateway.telemetry.request_observers import RequestObservers


def telemetry(folder: Path, clock: Any) -> SimpleNamespace:
    return SimpleNamespace(requests=RequestObservers(Counters(folder), clock))


@pytest.fixture(scope="module")
def document() -> dict:
    return openapi_module.describe(surface_table.described())


def test_every_operation_is_described_once_with_a_unique_id(document) -> None:
    listed = {(o.method.lower(), openapi_module.VARIABLE.sub(r"{\1}", o.path)) for o in surface_table.described()}
    found = {(method, path) for path, methods in document["paths"].items() for method in methods}
    ids = [method["operationId"] for methods in document["paths"].values() for method in methods.values()]
    assert found == listed and len(ids) == len(set(ids))


def test_every_reference_leads_somewhere(document) -> None:
    references = set(re.findall(r'"\$ref":"#/components/(\w+)/([^"]+)"', orjson.dumps(document).decode()))
    assert references
    for kind, name in references:
        assert name in document["components"][kind], name


def test_every_operation_documents_responses_and_access(document) -> None:
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            assert one["responses"] and one["summary"], (method, path)
            assert one["security"] or not path.startswith("/orgs"), path


def test_operations_without_authentication_are_not_among_those_of_models(document) -> None:
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert [one["operationId"] for one in operations if one["security"] == [] and one["tags"] == ["Models"]] == []


@pytest.mark.parametrize("status", ["200", "503"])
def test_probes_answer_a_text_whether_they_succeed_or_fail(document, status: str) -> None:
    answer = document["paths"]["/health/liveliness"]["get"]["responses"][status]
    assert answer["content"]["text/plain"]["schema"]["type"] == "string"


def test_every_way_to_authenticate_that_an_operation_names_is_described(document) -> None:
    schemes = document["components"]["securitySchemes"]
    used = set()
    for methods in document["paths"].values():
        for operation in methods.values():
            used |= {name for alternative in operation["security"] for name in alternative}
    assert used == set(schemes)
    headers = {scheme.get("name", "Authorization") for scheme in schemes.values()}
    assert headers == {"Authorization", "x-api-key"}
    assert document["paths"]["/v1/models"]["get"]["security"][0] == {}, "a key is optional there"
    assert document["paths"]["/health/liveliness"]["get"]["security"] == []


def test_every_error_with_which_a_call_of_a_model_can_end_is_described(document) -> None:
    """Not described: 412 and 416, of other operations, and 499, which no caller receives. 426 is of handshakes."""
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GatewayError)]
    possible = {kind.status for kind in classes} - {412, 416, 499} | {426}
    described = document["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert {int(status) for status in described} == possible | {200}


@pytest.mark.parametrize(
    ("scheme", "always", "of_changes"),
    [
        ("session", {400, 401, 403, 404, 503}, {409, 413, 415}),
        ("scimToken", {400, 401, 404, 410, 429, 503}, {403, 409, 412, 413, 415}),
    ],
)
def test_refusals_of_management_operations_are_described(document, scheme, always, of_changes) -> None:
    for methods in document["paths"].values():
        for method, operation in methods.items():
            if operation["security"] == [{scheme: []}]:
                refused = always | (of_changes if method != "get" else set())
                assert refused <= {int(status) for status in operation["responses"]}, operation["operationId"]


def test_a_description_is_of_the_operation_and_not_of_a_wrapper(document) -> None:
    descriptions = [one.get("description", "") for path in document["paths"].values() for one in path.values()]
    assert [text for text in descriptions if "partial" in text] == []
    assert document["paths"]["/v1/audio/transcriptions"]["post"]["description"].startswith("Transcribe an audio file")


def test_the_headers_that_choose_a_call_of_the_ai_sdk_are_described(document) -> None:
    described = document["paths"]["/v4/ai/language-model"]["post"]["parameters"]
    assert {header["name"]: header["required"] for header in described} == {
        "ai-language-model-id": True,
        "ai-language-model-streaming": False,
        "ai-language-model-specification-version": False,
    }


def test_an_answer_without_a_body_is_described_without_one(document) -> None:
    answers = document["paths"]["/mcp"]["post"]["responses"]
    assert "content" in answers["200"] and "content" not in answers["202"]
    methods = [method for methods in document["paths"].values() for method in methods.values()]
    for status in ("204", "303"):
        described = [method["responses"][status] for method in methods if status in method["responses"]]
        assert described and not any("content" in answer for answer in described)


def test_variables_of_a_path_are_its_parameters(document) -> None:
    for path, methods in document["paths"].items():
        for method in methods.values():
            named = {p["name"] for p in method["parameters"] if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path)), path


def test_bodies_come_from_the_schemas_that_check_them(document) -> None:
    chat = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert chat == {"$ref": "#/components/schemas/openai.ChatBody"}
    body = document["components"]["schemas"]["openai.ChatBody"]
    assert body["required"] == ["model", "messages"] or set(body["required"]) >= {"model", "messages"}
    key = document["components"]["schemas"]["keys.NewKey"]
    assert set(key["required"]) == {"description", "projectId"}


def test_a_deprecated_operation_says_so_with_its_dates() -> None:
    deprecated = Deprecated("2026-01-31", "2027-01-31", "https://llm.example.com/docs")
    headers = dict(http_responses_module.deprecation_headers(deprecated))
    assert headers == {
        "Deprecation": "@1769817600",
        "Sunset": "Sun, 31 Jan 2027 00:00:00 GMT",
        "Link": '<https://llm.example.com/docs>; rel="deprecation"; type="text/html"',
    }
    undecided = dict(http_responses_module.deprecation_headers(Deprecated("2026-01-31")))
    assert undecided == {
        "Deprecation": "@1769817600",
        "Link": '</docs#versions>; rel="deprecation"; type="text/html"',
    }


def test_every_answer_of_a_deprecated_operation_carries_the_notice(tmp_path: Path) -> None:
    services = SimpleNamespace(telemetry=telemetry(tmp_path, Clock()), clock=Clock())
    for handler in (lambda s, i: http_responses_module.json_reply({}), lambda s, i: 1 / 0):
        operation = Operation("GET", "/old", handler, deprecated=Deprecated("2026-01-31"))
        answer = guard(services, operation)(Inbound("GET", "/old", {}))
        assert ("Deprecation", "@1769817600") in answer.headers


def test_deprecation_shows_in_the_description() -> None:
    operation = Operation("GET", "/old", lambda s, i: None, deprecated=Deprecated("2026-01-31"))
    shown = openapi_module.describe([operation])["paths"]["/old"]["get"]
    assert shown["deprecated"] is True
    assert shown["description"] == "Deprecated since 2026-01-31. No removal date is set. See /docs#versions."


@pytest.mark.parametrize(("day", "status"), [(30, 200), (31, 410)])
def test_an_operation_returns_410_from_its_removal_date(tmp_path: Path, day: int, status: int) -> None:
    now_us = int(datetime(2027, 1, day, tzinfo=UTC).timestamp()) * 1_000_000
    clock = SimpleNamespace(now_us=lambda: now_us, monotonic=Clock.monotonic)
    services = SimpleNamespace(telemetry=telemetry(tmp_path, clock), clock=clock)
    ended = Deprecated("2026-01-31", "2027-01-31")
    operation = Operation("GET", "/old", lambda s, i: http_responses_module.json_reply({}), deprecated=ended)
    answer = guard(services, operation)(Inbound("GET", "/old", {}))
    assert answer.status == status and ("Sunset", "Sun, 31 Jan 2027 00:00:00 GMT") in answer.headers
    assert status == 200 or orjson.loads(answer.body)["error"]["code"] == "gone"


def test_the_policy_is_published_in_the_description(document) -> None:
    assert document["externalDocs"]["url"] == policy_module.ADDRESS
    for name in ("Deprecation: @", "Sunset: ", "six months", "deprecated_at"):
        assert name in document["info"]["description"]


def test_the_published_policy_is_that_of_the_documentation() -> None:
    written = (Path(__file__).resolve().parents[4] / "docs" / "versioning.md").read_text()
    known = re.sub(r"[\s*]+", " ", written)
    for _, rules in policy_module.POLICY[:2]:
        for rule in rules:
            text = re.sub(r"^(Deprecated|Scheduled|Removed): ", "", rule)
            for sentence in re.split(r"(?<=\.) (?=[A-Z])", text):
                assert sentence[0].upper() + sentence[1:] in known, sentence


SERVICES = SimpleNamespace(settings=SimpleNamespace(server=SimpleNamespace(public_url="")))


def test_the_description_is_served_under_its_addresses() -> None:
    served = {
        o.path: o.handler(SERVICES, Inbound("GET", o.path, {}))
        for o in openapi_module.surface(surface_table.described).operations
    }
    assert served["/openapi.json"].body == served["/json"].body
    operation = json.loads(served["/docs/openapi.json"].body)["paths"]["/v1/chat/completions"]["post"]
    assert [sample["label"] for sample in operation["x-codeSamples"]] == ["curl", "Python", "TypeScript"]
    assert "x-codeSamples" not in json.loads(served["/json"].body)["paths"]["/v1/chat/completions"]["post"]


def test_the_description_is_cached_and_compressed_on_request(monkeypatch) -> None:
    written = []
    describe = openapi_module.describe
    monkeypatch.setattr(
        openapi_module, "describe", lambda listed, server: written.append(1) or describe(listed, server)
    )
    handlers = {o.path: o.handler for o in openapi_module.surface(surface_table.described).operations}
    for path in ("/docs/openapi.json", "/openapi.json"):
        plain = handlers[path](SERVICES, Inbound("GET", path, {}))
        packed = handlers[path](SERVICES, Inbound("GET", path, {"accept-encoding": "gzip, br"}))
        assert dict(packed.headers)["Content-Encoding"] == "gzip" and "Content-Encoding" not in dict(plain.headers)
        assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body) / 8
    assert written == [1]


def test_the_description_is_valid_openapi() -> None:
    from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

    found = openapi_module.describe(surface_table.described())
    found["externalDocs"]["url"] = (
        f"http://127.0.0.1:4001{policy_module.ADDRESS}"  # OpenAPI 3.1 allows references anywhere
    )
    assert [f"{error.instance_path}: {error.message[:200]}" for error in OPENAPI_31_VALIDATOR.iter_errors(found)] == []


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/v1/audio/transcriptions", {"file": "a.mp3"}),
        ("/v1/audio/transcriptions", {"model": "auto", "file": "a.mp3", "url": "https://a.example/a.mp3"}),
        ("/v1/audio/transcriptions", {"model": "auto", "url": "file:///etc/passwd"}),
        ("/v1/audio/transcriptions", {"model": "auto", "url": 1}),
        *(
            ("/v1/audio/transcriptions", {"model": "auto", "file": "a.mp3"} | mistake)
            for mistake in (
                *({"model": ""}, {"model": 1}, {"file": ["a.mp3"]}, {"language": ["en"]}, {"prompt": ["Zoë"]}),
                *({"response_format": "xml"}, {"stream": "perhaps"}, {"diarize": "perhaps"}, {"routing": "best"}),
                *({"temperature": "hot"}, {"temperature": -0.1}, {"temperature": 1.1}, {"chunking_strategy": ["auto"]}),
                *({"timestamp_granularities[]": "word"}, {"timestamp_granularities[]": ["letter"]}),
                *({"include[]": "logprobs"}, {"include[]": [1]}, {"keywords[]": "Oslo"}, {"keyterm": "Oslo"}),
                {"languages[]": "en"},
            )
        ),
        ("/v1/images/edits", {"prompt": "A cat.", "image[]": "cat.png"}),
        ("/v1/images/edits", {"prompt": "A cat.", "image": []}),
        ("/v1/images/edits", {"prompt": "A cat.", "image": ["cat.png"] * 17}),
        ("/v1/images/edits", {"prompt": "A cat.", "image": ["cat.png"], "mask": ["mask.png"]}),
        ("/v1/images/edits", {"prompt": "A cat.", "image": ["cat.png"], "markup": ["markup.png"]}),
        ("/v1/videos", {"prompt": "A cat.", "image": ["cat.png"]}),
        ("/v1/videos", {"prompt": "A cat.", "last_frame": ["cat.png"]}),
        ("/v1/videos", {"prompt": "A cat.", "input_reference": ["cat.png"]}),
        ("/v1/videos", {"prompt": "A cat.", "reference_images": []}),
        ("/v1/videos", {"prompt": "A cat.", "reference_images": "cat.png"}),
        ("/v1/videos", {"prompt": "A cat.", "reference_images": [1]}),
        ("/v1/videos", {"prompt": "A cat.", "reference_images": ["cat.png"] * 10}),
    ],
)
def test_a_form_with_a_mistake_does_not_match_its_description(document, path: str, form: object) -> None:
    content = document["paths"][path]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert content["schema"]["type"] == "object"
    described = Draft202012Validator(content["schema"] | {"components": document["components"]})
    assert described.is_valid(content["example"]) and not described.is_valid(form)


@pytest.mark.parametrize(
    ("path", "one", "other"),
    [
        ("/v1/images/edits", {"image": ["cat.png"]}, {"image[]": ["cat.png"]}),
        ("/v1/audio/transcriptions", {"file": "a.mp3"}, {"url": "https://a.example/a.mp3"}),
    ],
)
def test_a_form_has_its_file_in_one_of_two_fields(
    document, path: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    content = document["paths"][path]["post"]["requestBody"]["content"]["multipart/form-data"]
    described = Draft202012Validator(content["schema"] | {"components": document["components"]})
    plain = {name: value for name, value in content["example"].items() if name not in {*one, *other}}
    assert described.is_valid(plain | one) and described.is_valid(plain | other)
    assert not described.is_valid(plain) and not described.is_valid(plain | one | other)


@pytest.mark.parametrize("text", ["", 1.5, True, -1, 1 << 32, []])
def test_the_description_of_embeddings_allows_no_text_that_is_refused(document, text: object) -> None:
    content = document["paths"]["/v1/embeddings"]["post"]["requestBody"]["content"]["application/json"]
    described = Draft202012Validator(content["schema"] | {"components": document["components"]})
    assert described.is_valid({"model": "auto", "input": ["Tea"]})
    for refused in ([], [text]):
        assert not described.is_valid({"model": "auto", "input": refused})


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v4/ai/language-model"])
def test_details_of_an_error_are_described_as_texts(document, path: str) -> None:
    reference = document["paths"][path]["post"]["responses"]["502"]["$ref"]
    content = document["components"]["responses"][reference.rpartition("/")[2]]["content"]["application/json"]
    described = Draft202012Validator(content["schema"] | {"components": document["components"]})
    body = copy.deepcopy(content["example"])
    body["error"]["vendor"] = "acme"
    assert described.is_valid(body)
    body["error"]["vendor"] = 7
    assert not described.is_valid(body)
