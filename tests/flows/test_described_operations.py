"""Every operation that the description lists is called, and what is sent and answered is what it describes.

WRITE_GOLDENS=1 pytest tests/flows/test_described_operations.py writes the examples of the description anew, out of what
was really sent and answered.
"""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.every_operation import STEPS, Taken, Tour
from support.gateways import local_gateway
from support.shared import load
from support.signed_in_owner import PASSWORD

from gateway.accounts.members import list_members
from gateway.surfaces import openapi, surface_table

METRICS_TOKEN = "an operator's token of some length"
EVENTS, JSON = "text/event-stream", "application/json"
URLENCODED = "application/x-www-form-urlencoded"
# Values that differ between two runs, and their replacements in the examples.
SAID = (
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "http://127.0.0.1:4001"),
    (re.compile(r"llmg[a-z]{2,3}_[\w-]{20,}"), lambda found: found[0][:8] + "0" * 40),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{28,40}(?![0-9a-f])"), "01a1b2c3d4e5f60718293a4b5c6d7e8f"),
    (re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)"), "2026-01-31T12:00:00.000Z"),
    (re.compile(r"20\d\d-\d\d-\d\d(?!T)"), "2026-01-31"),
    (re.compile(r"whsec_[\w+/=-]+"), "whsec_" + "0" * 32),
)
MOMENT = 1_769_860_800
SECRETS = ("secret", "device_code", "uri", "recoveryCodes", "token", "client_secret", "access_token")
SHORT, FEW = 240, 2
PAGE = "GET /oauth/authorize"
TEXTS = ("text/plain", "text/csv", "application/x-ndjson")


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Taken]]:
    folder = tmp_path_factory.mktemp("tour")
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD, "GATEWAY_METRICS_TOKEN": METRICS_TOKEN}
    with local_gateway(lambda **given: load(folder, **given), **environment) as gateway:
        owner = list_members(gateway.services.store.database)[0]
        session = gateway.services.management.sessions.open(owner.user_id).token
        tokens = {"key": gateway.key, "session": session, "operator": METRICS_TOKEN}
        yield list(Tour(gateway.address, tokens, PASSWORD).walk())


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi.describe(surface_table.described(), openapi.read_examples())


def described(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The operations by "METHOD /path"."""
    return {f"{m.upper()} {path}": one for path, methods in document["paths"].items() for m, one in methods.items()}


def problems(document: dict[str, Any], schema: Any, value: Any) -> list[str]:
    checked = Draft202012Validator({**schema, "components": document["components"]})
    return [f"{one.json_path}: {one.message[:200]}" for one in checked.iter_errors(value)]


def content_of(document: dict[str, Any], operation: dict[str, Any], status: int) -> dict[str, Any]:
    answer = operation["responses"][str(status)]
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return answer.get("content", {})


def test_every_operation_is_walked(document: dict[str, Any]) -> None:
    assert {step.operation for step in STEPS} == set(described(document)) - {"OPTIONS /mcp"}


def test_real_answers_are_as_described(document: dict[str, Any], taken: list[Taken]) -> None:
    found = []
    for one in taken:
        content = content_of(document, described(document)[one.step.operation], one.status)
        values: list[tuple[Any, Any]] = []
        if one.streamed:
            assert one.events(), one.step.operation
            values = [(content[EVENTS]["x-event-schema"], event) for event in one.events()]
        elif one.media == JSON:
            values = [(content[JSON]["schema"], json.loads(one.body))]
        else:
            told = {media.partition(";")[0] for media in content}
            assert told & {one.media, f"{one.media.partition('/')[0]}/*"}, one.step.operation
        for schema, value in values:
            found += [f"{one.step.operation} {text}" for text in problems(document, schema, value)]
    assert found == []


def test_what_was_sent_is_as_described(document: dict[str, Any], taken: list[Taken]) -> None:
    found = []
    for one in taken:
        body = described(document)[one.step.operation].get("requestBody", {}).get("content", {})
        if JSON in body and one.step.body is not None:
            found += [f"{one.step.operation} {text}" for text in problems(document, body[JSON]["schema"], one.sent)]
    assert found == []


def test_each_operation_has_summary_description_and_the_shape_of_its_answer(document: dict[str, Any]) -> None:
    for name, one in described(document).items():
        assert one["summary"] and one.get("description"), f"{name} is not described: its handler has a docstring"
        for status, answer in one["responses"].items():
            for media, told in answer.get("content", {}).items() if status.startswith("2") else ():
                bare = told["schema"] in ({}, {"type": "object"})
                assert not bare or media != JSON, f"{name} does not tell what {status} looks like"
        for media, told in one.get("requestBody", {}).get("content", {}).items():
            assert told["schema"] != {"type": "object"}, f"{name} does not tell what it takes as {media}"


def test_the_examples_are_as_described(document: dict[str, Any], taken: list[Taken]) -> None:
    if os.environ.get("WRITE_GOLDENS"):
        openapi.EXAMPLES.write_text(json.dumps(write_examples(taken), indent=1, ensure_ascii=False) + "\n")
    examples = openapi.read_examples()
    document = openapi.describe(surface_table.described(), examples)
    found = []
    for name, one in described(document).items():
        for status, answer in one["responses"].items():
            for media, told in answer.get("content", {}).items() if status.startswith("2") else ():
                first = media == next(iter(answer["content"]))
                wanted = media in (JSON, EVENTS) or (first and media.partition(";")[0] in TEXTS)
                assert "example" in told or not wanted, f"{name} {media} has no example"
                if media == JSON:
                    found += [f"{name} {text}" for text in problems(document, told["schema"], told["example"])]
        if not any(status.startswith("2") for status in one["responses"]) and name != PAGE:
            refusals = [told for answer in one["responses"].values() for told in answer.get("content", {}).values()]
            assert any("example" in told for told in refusals), f"{name} has no example of its refusal"
        body = one.get("requestBody", {}).get("content", {})
        for told in (body[media] for media in (JSON, URLENCODED) if media in body):
            assert "example" in told, f"{name} has no example of a request"
            found += [f"{name} {text}" for text in problems(document, told["schema"], told["example"])]
    assert found == [] and set(examples) <= set(described(document))


def write_examples(taken: list[Taken]) -> dict[str, dict[str, Any]]:
    """By operation, sorted: what was sent and answered first, and of a stream its first events."""
    examples: dict[str, dict[str, Any]] = {}
    for one in taken:
        example = examples.setdefault(one.step.operation, {})
        if one.sent is not None and "request" not in example:
            example["request"] = tidy(one.sent)
        if one.streamed:
            example.setdefault("events", say("\n\n".join(one.body.decode().split("\n\n")[:FEW]) + "\n\n"))
        elif one.media == JSON and one.status < 300:
            example.setdefault("answer", tidy(json.loads(one.body)))
        elif one.media in TEXTS and one.status < 300:
            example.setdefault("answer", say(one.body.decode())[:SHORT])
        elif one.status in (405, 426, 400, 501) and "answer" not in example:
            example |= {"status": one.status, "refusal": tidy(json.loads(one.body))}
    return {name: examples[name] for name in sorted(examples) if examples[name]}


def tidy(value: Any, name: str = "") -> Any:
    """The same value every time, short and without what is secret."""
    if isinstance(value, dict):
        return {key: tidy(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [tidy(inner, name) for inner in value[:FEW]]
    if isinstance(value, str):
        return value[:8] + "0" * len(value[8:]) if name in SECRETS else say(value)[:SHORT]
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value > 1_700_000_000:
            return MOMENT
        return 12 if name.endswith(("_ms", "Ms", "latency", "throughput", "duration")) and value else value
    return value


def say(text: str) -> str:
    for pattern, instead in SAID:
        text = pattern.sub(instead, text)
    return re.sub(r'"created(_at)?":\d{10}', rf'"created\1":{MOMENT}', text)


def test_the_health_report_is_described_with_its_parameter_and_its_failure(document: dict[str, Any]) -> None:
    report = described(document)["GET /"]
    assert [one["name"] for one in report["parameters"]] == ["skip"]
    assert content_of(document, report, 503) == {JSON: {"schema": content_of(document, report, 200)[JSON]["schema"]}}
