"""Links of the navigation lead to pages about the organization, project and period that were chosen last."""

from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.surfaces.console.kept_choices import COOKIE, link_page, read_choices
from gateway.surfaces.web.http import Inbound

PROJECT = f"proj_{'a' * 32}"
ORGANIZATION = f"org_{'b' * 32}"


def visit(path: str, query: str = "", cookie: str = "") -> Inbound:
    headers = {"cookie": f"{COOKIE}={cookie}"} if cookie else {}
    return Inbound("GET", path, headers, query=query, base_url="http://localhost")


def test_the_query_wins_over_what_was_kept_and_an_empty_choice_ends_it() -> None:
    kept = f"projectId={PROJECT}&timeRange=7d"
    assert read_choices(visit("/console/logs", cookie=kept)) == {"projectId": PROJECT, "timeRange": "7d"}
    assert read_choices(visit("/console/logs", "timeRange=30d", kept))["timeRange"] == "30d"
    assert read_choices(visit("/console/logs", "projectId=", kept)) == {"timeRange": "7d"}


@pytest.mark.parametrize("text", ["projectId=../x", "timeRange=custom", "organization=org_1", "model=gpt-4o"])
def test_other_values_are_not_kept(text: str) -> None:
    assert read_choices(visit("/console/explore", text)) == {}


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("/console", {"organization", "timeRange"}),
        ("/console/explore", {"projectId"}),
        ("/console/sessions", {"projectId"}),
        ("/console/teams", {"organization"}),
        ("/console/account", set()),
    ],
)
def test_a_page_gets_the_choices_that_it_takes(path: str, taken: set[str]) -> None:
    chosen = {"organization": ORGANIZATION, "projectId": PROJECT, "timeRange": "90d"}
    assert parse_qs(urlsplit(link_page(path, chosen)).query).keys() == taken
