"""`orgs`, `projects`, `credits` and `usage` against a gateway, and their exact requests to a fake service."""

from datetime import UTC, datetime

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_service import Answer, FakeService

TODAY = datetime.now(UTC).date().isoformat()


def requests_total(document: dict) -> int:
    return sum(row["requestCount"] for row in document["activity"])


def test_organizations_projects_and_credits_are_listed(client: Client, account: Account) -> None:
    (organization,) = client.document("orgs", "list")
    assert organization == account("GET", "/orgs")["organizations"][0]
    (project,) = client.document("projects", "list", "--org", organization["name"])
    answered = account("GET", f"/orgs/{account.organization_id}/projects")["projects"][0]
    assert project == {**answered, "organizationName": organization["name"]}
    assert client.document("credits", "-o", account.organization_id) == [
        {name: organization[name] for name in ("id", "name", "credits")}
    ]
    assert "$100.00" in client.run("credits").stdout and "$100.00" in client.run("orgs", "list").stdout
    assert "no organization 'other'" in client.refused("credits", "--org", "other")


def test_a_default_is_checked_and_stored(client: Client, account: Account) -> None:
    client.run("projects", "use", account.project_id)
    assert client.config["defaultProjectId"] == account.project_id
    assert client.config["defaultOrgId"] == account.organization_id
    client.configure(defaultOrgId="other")
    client.run("orgs", "use", account.organization_id)
    assert client.config["defaultOrgId"] == account.organization_id
    assert "(default)" in client.run("projects", "list").stdout
    (project,) = client.document("projects", "list")
    assert project["id"] in client.run("projects", "use", project["name"].upper()).stderr
    assert "has a project 'other'" in client.refused("projects", "use", "other")
    assert client.config["defaultProjectId"] == account.project_id


def test_usage_is_that_of_the_gateway(client: Client, account: Account) -> None:
    account.use_model(2, x_source="first-app")
    for window in (("-r", "1h"), ("-r", "24h"), ("-r", "365d"), ("--days", "3"), ("--from", TODAY, "--to", TODAY)):
        assert requests_total(client.document("usage", *window)) == 2
    assert client.document("usage") == account("GET", "/activity?timeRange=7d")
    key_id = account.list_keys()[account.email.partition("@")[0]]["id"]
    assert requests_total(client.document("usage", "-k", key_id, "-p", account.project_id)) == 2
    assert "no API key key_other" in client.refused("usage", "-k", "key_other")
    by_key = client.document("usage", "--by", "key")
    assert any(row["apiKeyBreakdown"] for row in by_key["activity"])
    text = client.run("usage").stdout
    assert "Requests: 2" in text and TODAY in text and "2026-01-01" not in text
    assert "sandbox" in client.run("usage", "--by", "model").stdout
    (source,) = client.document("usage", "sources", "-p", account.project_id, "-r", "30d")
    assert source == account("GET", f"/activity/sources?projectId={account.project_id}")["sources"][0]
    text = client.run("usage", "sources", "-p", account.project_id, "--from", TODAY).stdout
    assert "first-app" in text and f"Usage: project {account.project_id}" in text


def test_usage_of_an_organization_is_the_sum_of_its_projects(client: Client, account: Account) -> None:
    account.use_model()
    account("POST", "/projects", {"name": "Second", "organizationId": account.organization_id})
    listed = client.document("usage", "-o", account.organization_id)
    assert [set(report) for report in listed] == [{"projectId", "projectName", "activity"}] * 2
    finished = client.run("usage", "-o", account.organization_id)
    assert finished.stdout.splitlines()[-1].split()[:2] == ["TOTAL", "1"]
    assert "Usage: organization" in finished.stdout and "last 7d" in finished.stdout


@pytest.mark.parametrize("option", [("-p", "p"), ("-k", "k"), ("--by", "model"), ("--plot",)], ids=" ".join)
def test_an_option_without_effect_is_reported(
    option: tuple[str, ...], service: FakeService, service_client: Client
) -> None:
    assert "no effect with --org" in service_client.run("usage", "-o", "org_1", *option).stderr
    assert "no effect" not in service_client.run("usage", "-o", "org_1").stderr


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_plot_fits_the_terminal(columns: int, client: Client, account: Account) -> None:
    account.use_model()
    for window in ("1h", "24h", "30d", "365d"):
        with client.terminal("usage", "--plot", "-r", window, columns=columns) as terminal:
            text = terminal.end()
        chart = [line for line in text.splitlines() if " |" in line]
        assert len(chart) == 8 and any("█" in line for line in chart)
        assert max(len(line) for line in text.splitlines()) <= columns


def test_a_plot_without_usage_is_empty(client: Client) -> None:
    assert "█" not in client.run("usage", "--plot").stdout


REQUESTS = {
    ("auth", "whoami"): ["GET /auth/get-session"],
    ("auth", "logout"): ["POST /auth/sign-out"],
    ("orgs", "list"): ["GET /orgs"],
    ("orgs", "use", "acme"): ["GET /orgs"],
    ("projects", "list"): ["GET /orgs", "GET /orgs/org_1/projects"],
    ("projects", "use", "project_1"): ["GET /orgs", "GET /orgs/org_1/projects"],
    ("credits",): ["GET /orgs"],
    ("keys", "create", "-d", "x"): ["GET /orgs", "GET /orgs/org_1/projects", "POST /keys/api"],
    ("keys", "create", "-d", "x", "-p", "p"): ["POST /keys/api"],
    ("keys", "list"): ["GET /keys/api"],
    ("keys", "list", "-p", "p", "--all"): ["GET /keys/api?projectId=p&filter=all"],
    ("keys", "update", "key_1", "--activate"): ["PATCH /keys/api/key_1"],
    ("keys", "limit", "key_1", "-l", "1"): ["PATCH /keys/api/limit/key_1"],
    ("keys", "roll", "key_1", "-y"): ["POST /keys/api/key_1/roll"],
    ("keys", "delete", "key_1", "-y"): ["DELETE /keys/api/key_1"],
    ("budget", "get", "key_1", "-p", "p"): ["GET /keys/api?projectId=p"],
    ("usage",): ["GET /activity?timeRange=7d"],
    ("usage", "-p", "p", "-k", "k", "--by", "key", "-r", "1h"): [
        "GET /activity?projectId=p&apiKeyId=k&groupBy=apiKey&timeRange=1h"
    ],
    ("usage", "--by", "model", "--days", "3"): ["GET /activity?groupBy=model&days=3"],
    ("usage", "-r", "30d", "--days", "3"): ["GET /activity?days=3"],
    ("usage", "--from", "2026-01-01", "--to", "2026-01-31"): ["GET /activity?from=2026-01-01&to=2026-01-31"],
    ("usage", "--from", "2026-01-01"): [f"GET /activity?from=2026-01-01&to={TODAY}"],
    ("usage", "-o", "org_1"): [
        "GET /orgs",
        "GET /orgs/org_1/projects",
        "GET /activity?projectId=project_1&timeRange=7d",
    ],
    ("usage", "sources"): [
        "GET /orgs",
        "GET /orgs/org_1/projects",
        "GET /activity/sources?projectId=project_1&timeRange=7d",
    ],
    ("usage", "sources", "-p", "p"): ["GET /activity/sources?projectId=p&timeRange=7d"],
    ("usage", "sources", "-p", "p", "--from", "2026-01-01", "--to", "2026-01-02"): [
        "GET /activity/sources?projectId=p&from=2026-01-01&to=2026-01-02"
    ],
}


@pytest.mark.parametrize("arguments", REQUESTS, ids=" ".join)
def test_a_command_sends_exactly_these_requests(
    arguments: tuple[str, ...], service: FakeService, service_client: Client
) -> None:
    service_client.run(*arguments)
    assert service.lines == REQUESTS[arguments]


def test_the_default_project_is_used_for_new_keys_and_usage_alone(service: FakeService, service_client: Client) -> None:
    service_client.configure(defaultProjectId="project_1")
    for command in (("keys", "create", "-d", "x"), ("usage",), ("usage", "sources"), ("keys", "list")):
        service_client.run(*command)
    service_client.run("budget", "get", "key_1")
    assert service.calls[0].body == {"description": "x", "projectId": "project_1"}
    assert service.lines[1:] == [
        "GET /activity?projectId=project_1&timeRange=7d",
        "GET /activity/sources?projectId=project_1&timeRange=7d",
        *["GET /keys/api"] * 2,
    ]


def test_values_are_sent_as_they_were_typed(service: FakeService, service_client: Client) -> None:
    service_client.run(
        "keys", "create", "-d", "CI", "-p", "p", "-l", "49.90", "--period-limit", "10", "-e", "2099-01-01"
    )
    service_client.run("keys", "limit", "key_1", "--period-limit", "5", "--period", "12 hours")
    service_client.run("budget", "set", "key_1", "--clear")
    created, limited, cleared = (call.body for call in service.calls)
    assert created == {
        "description": "CI",
        "projectId": "p",
        "usageLimit": "49.90",
        "periodUsageLimit": "10",
        "periodUsageDurationValue": 1,
        "periodUsageDurationUnit": "month",
        "expiresAt": "2099-01-01T00:00:00.000Z",
    }
    assert limited == {"periodUsageLimit": "5", "periodUsageDurationValue": 12, "periodUsageDurationUnit": "hour"}
    limits = ("usageLimit", "periodUsageLimit", "periodUsageDurationValue", "periodUsageDurationUnit")
    assert cleared == dict.fromkeys(limits)


REFUSED = {
    ("usage", "--by", "user"): "model or key",
    ("usage", "-r", "3d"): "1h, 4h, 24h, 7d, 30d, 365d",
    ("usage", "--days", "0"): "1 or more",
    ("usage", "--days", "x"): "1 or more",
    ("usage", "--from", "2026-02-30"): "YYYY-MM-DD",
    ("usage", "--from", "20260101"): "YYYY-MM-DD",
    ("usage", "--to", "2026-01-01"): "--from",
    ("usage", "--from", "2026-01-02", "--to", "2026-01-01"): "after",
    ("usage", "--from", "2026-01-02", "--days", "3"): "exclude",
    ("usage", "sources", "-p", "p", "-r", "24h"): "7d, 30d",
    ("usage", "sources", "-p", "p", "--to", "2026-01-01"): "--from",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_mistake_is_refused_without_a_request(
    arguments: tuple[str, ...], service: FakeService, service_client: Client
) -> None:
    assert REFUSED[arguments] in service_client.refused(*arguments)
    assert service.calls == []


def test_a_name_that_two_organizations_have_is_ambiguous(service: FakeService, service_client: Client) -> None:
    twins = [{"id": f"org_{number}", "name": "Acme", "plan": "pro", "credits": None} for number in (1, 2)]
    service.script(*[Answer(200, {"organizations": twins})] * 2)
    assert "Several organizations" in service_client.refused("credits", "-o", "acme")
    assert "—" in service_client.run("credits").stdout


def test_empty_lists_are_said_on_the_error_stream(service: FakeService, service_client: Client) -> None:
    service.script(Answer(200, {"apiKeys": []}), Answer(200, {"organizations": []}), Answer(200, {"organizations": []}))
    assert (service_client.run("keys", "list").stdout, service_client.document("orgs", "list")) == ("", [])
    assert "You have no project" in service_client.refused("keys", "create", "-d", "x")
