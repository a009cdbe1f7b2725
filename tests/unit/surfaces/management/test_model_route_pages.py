"""Routes by the page for people and by the management API."""

import json
import re

import pytest

from gateway.metering import route_usage
from gateway.metering.usage_table import raw_id

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
OWN = {"Origin": "http://localhost"}
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')
PATH = "/console/routes"
DOCUMENT = {"rules": [{"name": "helpers", "when": {"agent": "sub"}, "use": "gpt-4o-mini"}], "otherwise": "gpt-4o"}


@pytest.fixture
def browser(shared_tenants):
    found = shared_tenants.gateway.app.flask.test_client()
    found.post("/console/login", data={"email": EMAIL, "password": PASSWORD, "redirect": "/console"}, headers=OWN)
    return found


def test_page_drafts_checks_publishes_rolls_back_and_removes_a_route(browser) -> None:
    page = browser.get(PATH)
    assert page.status_code == 200
    hidden = {name: value for name, value in FIELD.findall(page.text) if name in ("csrf", "organization")}

    def press(action: str, **more: str):
        return browser.post(PATH, data={**hidden, "action": action, "route": "house", **more}, headers=OWN)

    checked = press("check", document=json.dumps(DOCUMENT))
    assert "helpers: a sub-agent calls → gpt-4o-mini" in checked.text
    assert "chat requests of the last week cost" in press("run", document=json.dumps(DOCUMENT)).text
    saved = press("save", document=json.dumps(DOCUMENT), aliases="house-default")
    assert "The draft was saved" in saved.text and "not published" in saved.text
    published = press("publish")
    assert "Version 1 of house is published" in published.text and "dynamic/house, house-default" in published.text
    press("save", document=json.dumps({"otherwise": "gpt-4o"}))
    assert "Version 2 of house is published" in press("publish").text
    assert "Version 1 of house is published" in press("publish", version="1").text
    refused = press("save", document='{"otherwise": "no-such-model"}')
    assert refused.status_code == 400 and "no-such-model" in refused.text
    assert press("save", document="{").status_code == 400
    assert "The route was removed" in press("remove").text


@pytest.fixture
def routes(shared_tenants):
    """Return a function that calls an operation of the owner's routes."""
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/routes"

    def call(method: str, place: str = "", body: object = None):
        return shared_tenants.call(method, f"{path}{place}", owner, body)

    yield call
    for name in ("house", "other"):
        call("DELETE", f"/{name}")


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ({}, "document"),
        ({"otherwise": "gpt-4o", "rules": [{"use": "gpt-4o", "when": {"weather": "fine"}}]}, "document.rules.0.when"),
        ({"otherwise": "dynamic/other"}, "document.otherwise"),
        ({"otherwise": "smart"}, "document.otherwise"),
        ({"otherwise": "gpt-4o", "rules": [{"use": "nothing"}]}, "document.rules.0.use"),
        ({"otherwise": "gpt-4o", "reference": "nothing"}, "document.reference"),
        (
            {"otherwise": "gpt-4o", "rules": [{"use": "gpt-4o", "when": {"headers": {"cookie": "*"}}}]},
            "document.rules.0.when.headers",
        ),
    ],
)
def test_document_that_cannot_be_published_is_refused_with_its_place(routes, document, param) -> None:
    for method, place in (("PUT", "/house"), ("POST", "/check")):
        status, answer = routes(method, place, {"document": document})[:2]
        assert status == 400 and answer["param"] == param


def test_alias_replaces_a_model_only_where_the_owner_says_that(routes) -> None:
    body = {"document": {"otherwise": "gpt-4o-mini"}, "aliases": ["gpt-4o"]}
    status, refused = routes("PUT", "/house", body)[:2]
    assert (status, refused["code"]) == (400, "route_replaces_model")
    assert routes("PUT", "/house", {**body, "replacesModels": True})[0] == 200
    taken = {"document": {"otherwise": "gpt-4o"}, "aliases": ["gpt-4o"], "replacesModels": True}
    assert routes("PUT", "/other", taken)[0] == 409


def test_unknown_version_and_unknown_route_are_not_found(routes) -> None:
    assert routes("POST", "/house/publish", {})[0] == 404
    routes("PUT", "/house", {"document": {"otherwise": "gpt-4o"}})
    assert routes("POST", "/house/publish", {"version": 3})[0] == 404
    first = routes("POST", "/house/publish", {})[1]["route"]
    again = routes("POST", "/house/publish", {})[1]["route"]
    assert (first["publishedVersion"], again["publishedVersion"]) == (1, 1)  # an unchanged draft is no new version


def write_as_a_later_release(shared_tenants, document: object) -> None:
    """Replace the documents of the route "house" by one of a later release."""
    database, text = shared_tenants.services.store.database, json.dumps(document)
    find = "SELECT id FROM model_route WHERE name = 'house'"

    def write() -> None:
        database.execute(f"UPDATE model_route_version SET document = ? WHERE route_id IN ({find})", (text,))
        database.execute("UPDATE model_route SET draft = ? WHERE name = 'house'", (text,))

    database.write(write)


@pytest.mark.parametrize(
    ("changes", "left_out", "rules"),
    [
        ({"rules": [*DOCUMENT["rules"], {"use": "gpt-4o", "when": {"weather": "rain"}}]}, ["rules.1"], 2),
        ({"rules": {"first": {}}}, ["rules"], 1),
        ({"otherwise": {"best": ["gpt-4o"]}}, ["otherwise"], 0),
    ],
)
def test_parts_of_a_later_release_are_told_and_never_lost(
    shared_tenants, routes, browser, changes, left_out, rules
) -> None:
    routes("PUT", "/house", {"document": DOCUMENT})
    routes("POST", "/house/publish", {})
    later = {**DOCUMENT, **changes}
    write_as_a_later_release(shared_tenants, later)
    (listed,) = [one for one in routes("GET")[1]["routes"] if one["id"] == "house"]
    shown = routes("GET", "/house")[1]["route"]
    assert listed == shown and shown["document"] == later
    assert shown["leftOut"] == shown["publishedLeftOut"] == left_out
    assert len(shown["rules"]) == len(shown["publishedRules"]) == rules
    (version,) = routes("GET", "/house/versions")[1]["versions"]
    assert (version["document"], version["leftOut"]) == (later, left_out)
    page = browser.get(PATH)
    assert page.status_code == 200 and f"A later release wrote {left_out[0]} of the draft" in page.text
    # Neither the draft nor an edited copy of it replaces the parts that this release does not know.
    for answer in (
        routes("POST", "/house/publish", {}),
        routes("PUT", "/house", {"document": {**shown["document"], "reference": "gpt-4o"}}),
    ):
        assert (answer[0], answer[1]["code"]) == (400, "route_invalid"), answer
    assert routes("GET", "/house")[1]["route"] == shown
    assert routes("PUT", "/house", {"document": DOCUMENT})[0] == 200
    assert routes("POST", "/house/publish", {})[1]["route"]["leftOut"] == []


def test_overview_and_page_show_what_routes_saved(shared_tenants, browser) -> None:
    visitor = shared_tenants.services.store
    organization = shared_tenants.gateway.organization_id
    values = (bytes(16), 0, raw_id(organization), bytes(16), "house", 3, "hard", "gpt-4o", "stop", 0, 900)
    row = (*values, 1_000_000_000, 3_500_000_000, visitor.database.now_us())
    visitor.database.write(lambda: visitor.database.execute(route_usage.RECORD.sql, row))
    try:
        assert "Saved by routes" in browser.get("/console").text
        page = browser.get(PATH).text
        assert "$2.50</span> in the last 30 days" in page and "house, version 3" in page
    finally:
        visitor.database.write(lambda: visitor.database.execute("DELETE FROM route_usage WHERE route = ?", ("house",)))
