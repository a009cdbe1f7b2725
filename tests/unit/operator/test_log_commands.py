"""The operator's view of the request log: a list with filters, new requests as they end, one request explained."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support import requests as rows

from gateway.metering.usage_table import raw_id
from gateway.operator import log_commands
from gateway.operator.installation_commands import Installation

REFUSAL = json.dumps({"upstream_error": "Your credit balance is too low."})


@pytest.fixture
def project(run) -> dict[str, str]:
    return json.loads(run("projects", "list", "--json"))[0]


@pytest.fixture
def fill(run, project) -> Callable[..., None]:
    """Write rows of the request log that belong to the first project."""
    [key] = json.loads(run("keys", "list", "--json"))
    ids = {"organization": project["organizationId"], "project": project["id"], "api_key": key["id"]}
    owner = {name: raw_id(ident) for name, ident in ids.items()}

    def write(*made: Any) -> None:
        installation = Installation()
        rows.fill(installation.database, [row._replace(**owner) for row in made])
        installation.close()

    return write


@pytest.fixture
def filled(fill) -> None:
    failed = rows.attempt(2, status=401, error="upstream_refused", finish="error", extra=REFUSAL, cost_nusd=0)
    fill(
        rows.attempt(1),
        failed,
        rows.attempt(2, attempt=1, provider="other", label="mine"),
        rows.entry(3, metadata=json.dumps({"team": "search"})),
    )


def ident(number: int) -> str:
    return rows.request_at(number).hex()


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ((), [3, 2, 1]),
        (("--limit", "2"), [3, 2]),
        (("--provider", "other"), [2]),
        (("--status", "402"), [3]),
        (("--error", "upstream_refused"), [2]),
        (("--failed",), [3]),
        (("--metadata", "team:search"), [3]),
        (("--request-id", "mine"), [2]),
        (("--source", "unknown"), []),
        (("--from", "2023-11-14T22:15"), [3, 2]),
        (("--to", "2023-11-14T22:15"), [1]),
    ],
    ids=str,
)
def test_requests_are_listed_by_the_given_filters(run, filled, filters: tuple[str, ...], numbers: list[int]) -> None:
    assert [one["id"] for one in json.loads(run("logs", "--json", *filters))] == [ident(n) for n in numbers]


def test_requests_of_one_project_organization_or_key_are_listed(run, filled, project) -> None:
    for scope in (("--project", project["id"]), ("--organization", project["organizationId"])):
        assert len(run("logs", *scope).splitlines()) == 4
    [key] = json.loads(run("keys", "list", "--json"))
    run("keys", "create", "--description", "Other")
    for found in json.loads(run("keys", "list", "--json")):
        listed = json.loads(run("logs", "--key", found["id"], "--json"))
        assert len(listed) == (3 if found["id"] == key["id"] else 0)
    assert "There is no project" in run("logs", "--project", "proj_none", status=1)
    assert "There is no API key" in run("logs", "--key", "key_none", status=1)


def test_the_list_names_projects_and_errors(run, filled, project) -> None:
    head, newest, *_ = run("logs").splitlines()
    assert head.split()[:3] == ["AT", "ID", "STATUS"]
    assert ident(3) in newest and project["name"] in newest and newest.endswith("key_limit_reached")


def test_new_requests_are_followed_the_newest_last_and_each_once(run, filled, fill, monkeypatch) -> None:
    rounds = iter([lambda: fill(rows.attempt(4)), lambda: None, lambda: fill(rows.attempt(5, error="timeout"))])

    def sleep(_: float) -> None:
        step = next(rounds, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(log_commands.time, "sleep", sleep)
    shown = [json.loads(line)["id"] for line in run("logs", "--follow", "--limit", "1", "--json").splitlines()]
    assert shown == [ident(3), ident(4), ident(5)]


def test_a_request_that_took_long_is_followed_too(run, filled, fill, monkeypatch) -> None:
    rounds = iter([lambda: fill(rows.attempt(2, request=rows.request_at(2)[:15] + b"x"))] + [lambda: None] * 15)

    def sleep(_: float) -> None:
        step = next(rounds, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(log_commands.time, "sleep", sleep)
    output = run("logs", "--follow", "--limit", "3").splitlines()
    assert len(output) == 4 and (rows.request_at(2)[:15] + b"x").hex() in output[-1]


def test_a_request_is_explained_with_the_providers_words_and_what_to_do(run, filled, project) -> None:
    text = run("explain", ident(2))
    assert text == run("explain", "mine")
    assert "Provider's message: Your credit balance is too low." in text
    assert f"project {project['name']} ({project['id']})" in text
    assert "Upstream call 2: other/small, status 200" in text and "Served by: other/small" in text
    assert "Remedy for upstream_refused: the provider refused our credential" in text
    facts = json.loads(run("explain", ident(2), "--json"))
    assert facts["attempts"][0]["upstreamError"] == "Your credit balance is too low."
    [key] = json.loads(run("keys", "list", "--json"))
    assert f"key {key['description']} ({key['id']})" in text
    owner = facts["owner"]
    assert (owner["key_mask"], owner["key_owner"]) == (key["maskedToken"], key["creator"]["email"])
    assert facts["log"]["id"] == ident(2)


def test_a_refused_request_is_explained(run, filled) -> None:
    text = run("explain", ident(3))
    assert "Result: 402 key_limit_reached" in text and "Metadata: team=search" in text
    assert "Upstream calls: none" in text and "raise the key's limit" in text


def test_an_unknown_request_is_not_found(run, filled) -> None:
    assert "There is no request" in run("explain", "none", status=1)
