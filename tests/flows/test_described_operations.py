"""Every operation that the description lists is called, and what is sent and answered is what it describes."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from support.every_operation import STEPS, RecordedResponse, Tour
from support.gateways import LocalGateway, local_gateway
from support.shared import load
from support.signed_in_owner import PASSWORD

from gateway.accounts import audit
from gateway.accounts.members import list_members
from gateway.surfaces import surface_table
from gateway.surfaces.description import openapi as openapi_module
from gateway.surfaces.description.openapi import VARIABLE
from gateway.surfaces.management import table as management
from gateway.surfaces.management.managed_operation import ManagedOperation

METRICS_TOKEN = "an operator's token of some length"
EVENTS, JSON = "text/event-stream", "application/json"
SHOWN = (JSON, "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
# An entry that no operation of the table leaves: a session is opened by a sign-in.
BESIDE = {"session.create"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    folder = tmp_path_factory.mktemp("tour")
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD, "GATEWAY_METRICS_TOKEN": METRICS_TOKEN}
    with local_gateway(lambda **given: load(folder, **given), **environment) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def recorded(gateway: LocalGateway) -> list[RecordedResponse]:
    database = gateway.services.store.database
    owner = list_members(database)[0]
    # Something to confirm: an address that its person set leaves no entry.
    changed = "UPDATE \"user\" SET email_set_by = 'scim_1' WHERE id = ?"
    database.write(lambda: database.execute(changed, (owner.user_id,)))
    session = gateway.services.management.sessions.open(owner.user_id).token
    tokens = {"key": gateway.key, "session": session, "operator": METRICS_TOKEN}
    completed = []
    for response in Tour(gateway.address, tokens, PASSWORD).walk():
        response.audit = [entry.action for entry in audit.list_entries(database, limit=1000)]
        completed.append(response)
    return completed


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_module.describe(surface_table.described())


def described(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The operations by "METHOD /path"."""
    return {
        f"{m.upper()} {path}": method for path, methods in document["paths"].items() for m, method in methods.items()
    }


def problems(document: dict[str, Any], schema: Any, value: Any) -> list[str]:
    checked = Draft202012Validator({**schema, "components": document["components"]})
    return [f"{error.json_path}: {error.message[:200]}" for error in checked.iter_errors(value)]


def content_of(document: dict[str, Any], operation: dict[str, Any], status: int) -> dict[str, Any]:
    answer = operation["responses"][str(status)]
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    return answer.get("content", {})


def headers_of(document: dict[str, Any], operation: str) -> list[set[str]]:
    """The headers of each described way to authenticate a call of an operation."""
    schemes = document["components"]["securitySchemes"]
    ways = described(document)[operation]["security"] or [{}]
    return [{header_of(schemes[name]) for name in way} for way in ways]


def header_of(scheme: dict[str, str]) -> str:
    if scheme["type"] == "http":
        assert scheme["scheme"] == "bearer"
        return "Authorization"
    assert (scheme["type"], scheme["in"]) == ("apiKey", "header")
    return scheme["name"]


def test_every_operation_is_walked(document: dict[str, Any]) -> None:
    assert {step.operation for step in STEPS} == set(described(document))


def test_real_answers_are_as_described(document: dict[str, Any], recorded: list[RecordedResponse]) -> None:
    found = []
    for response in recorded:
        content = content_of(document, described(document)[response.step.operation], response.status)
        values: list[tuple[Any, Any]] = []
        if response.streamed:
            assert response.events(), response.step.operation
            assert "x-event-schema" in content[EVENTS]["schema"]["description"]
            values = [(content[EVENTS]["x-event-schema"], event) for event in response.events()]
        elif response.media == JSON:
            values = [(content[JSON]["schema"], json.loads(response.body))]
        elif response.body:
            media_types = {media.partition(";")[0] for media in content}
            assert media_types & {response.media, f"{response.media.partition('/')[0]}/*"}, response.step.operation
        for schema, value in values:
            found += [f"{response.step.operation} {text}" for text in problems(document, schema, value)]
    assert found == []


def test_an_operation_leaves_the_audit_entries_of_its_row(recorded: list[RecordedResponse]) -> None:
    rows = {
        operation.method + " " + VARIABLE.sub(r"{\1}", operation.path): set(operation.audit)
        for operation in management.OPERATIONS
        if isinstance(operation, ManagedOperation)
    }
    left: dict[str, set[str]] = {}
    before = 0
    for response in recorded:
        added = set(response.audit[: len(response.audit) - before])
        before = len(response.audit)
        if response.step.operation in rows and response.status < 300:
            assert bool(added - BESIDE) == bool(rows[response.step.operation]), (response.step.operation, added)
            left.setdefault(response.step.operation, set()).update(added - BESIDE)
    assert {operation: rows[operation] for operation in left} == left


def test_sent_requests_match_the_description(document: dict[str, Any], recorded: list[RecordedResponse]) -> None:
    found = []
    for response in recorded:
        body = described(document)[response.step.operation].get("requestBody", {}).get("content", {})
        if JSON in body and response.step.body is not None:
            found += [
                f"{response.step.operation} {text}" for text in problems(document, body[JSON]["schema"], response.sent)
            ]
    assert found == []


def test_an_operation_is_called_with_a_credential_that_it_describes(
    document: dict[str, Any], recorded: list[RecordedResponse]
) -> None:
    for response in recorded:
        sent = set() if response.step.access == "none" else {"Authorization"}
        assert sent in headers_of(document, response.step.operation), response.step.operation
    assert all(scheme["description"] for scheme in document["components"]["securitySchemes"].values())


def test_a_key_is_accepted_in_each_described_header(document: dict[str, Any], gateway: LocalGateway) -> None:
    ways = headers_of(document, "GET /v1/key")
    assert ways == [{"Authorization"}, {"x-api-key"}]
    for header, value in (("Authorization", f"Bearer {gateway.key}"), ("x-api-key", gateway.key)):
        assert httpx.get(f"{gateway.url}/key", headers={header: value}).status_code == 200


def test_each_operation_has_summary_description_and_the_shape_of_its_answer(document: dict[str, Any]) -> None:
    for name, operation in described(document).items():
        assert operation["summary"] and operation.get("description"), (
            f"{name} is not described: its handler has a docstring"
        )
        for status, answer in operation["responses"].items():
            for media, content in answer.get("content", {}).items() if status.startswith("2") else ():
                bare = content["schema"] in ({}, {"type": "object"})
                assert not bare or media != JSON, f"{name} does not tell what {status} looks like"
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            assert content["schema"] != {"type": "object"}, f"{name} does not tell what it takes as {media}"


def test_each_body_answer_and_stream_has_an_example_that_its_schema_allows(document: dict[str, Any]) -> None:
    contents = [
        (f"components {name}", response["content"]) for name, response in document["components"]["responses"].items()
    ]
    for name, operation in described(document).items():
        contents.append((f"{name} request", operation.get("requestBody", {}).get("content", {})))
        contents += [
            (f"{name} {status}", answer.get("content", {})) for status, answer in operation["responses"].items()
        ]
    found = []
    for name, content in contents:
        for media, description in content.items():
            if media in SHOWN:
                found += [
                    f"{name} {text}" for text in problems(document, description["schema"], description["example"])
                ]
            elif media == EVENTS:
                event = json.loads(description["example"].removeprefix("data: "))
                found += [f"{name} {text}" for text in problems(document, description["x-event-schema"], event)]
    assert found == []


def test_an_example_shows_what_a_member_means(document: dict[str, Any]) -> None:
    operations = described(document)
    chat = operations["POST /v1/chat/completions"]["requestBody"]["content"][JSON]["example"]
    assert chat == {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}]}
    key = content_of(document, operations["POST /keys/api"], 200)[JSON]["example"]["apiKey"]
    assert key["id"].startswith("key_") and key["projectId"].startswith("proj_") and key["usage"] == "12.5"
    assert key["createdAt"] == "2026-01-31T12:00:00.000Z" and key["creator"]["id"].startswith("user_")


def test_the_health_report_is_described_with_its_parameter_and_its_failure(document: dict[str, Any]) -> None:
    report = described(document)["GET /"]
    assert [parameter["name"] for parameter in report["parameters"]] == ["skip"]
    assert content_of(document, report, 503) == content_of(document, report, 200)
