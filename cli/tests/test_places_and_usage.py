"""`orgs`, `projects`, `credits` and `usage` against a gateway, and their exact requests to a fake service."""

import re
from datetime import UTC, datetime

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_service import FIGURES, KEY, Answer, FakeService

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


def test_people_see_their_own_budget_with_the_limits_of_their_teams(client: Client, account: Account) -> None:
    organization = f"/orgs/{account.organization_id}"
    member = account("GET", f"{organization}/membership")["membership"]["member"]["id"]
    limit = {"periodUsageLimit": "7", "periodUsageDurationValue": 1, "periodUsageDurationUnit": "month"}
    account("PATCH", f"{organization}/members/{member}/limit", {"usageLimit": "50", **limit})
    team = account("POST", f"{organization}/teams", {"name": "Research"})["team"]["id"]
    account("PUT", f"{organization}/teams/{team}/members/{member}")
    account.use_model(1)
    assert client.document("budget") == [account("GET", f"{organization}/membership")["membership"]]
    text = client.run("budget", "-o", account.organization_id).stdout
    assert re.search(r"you +\$0\.\d+ / \$50\.00 +\$0\.\d+ / \$7\.00 per month", text)
    assert "team Research" in text
    assert "no organization 'other'" in client.refused("budget", "--org", "other")


def test_limits_of_an_organization_are_set_shown_raised_and_deleted(client: Client, account: Account) -> None:
    limits = f"/orgs/{account.organization_id}/limits"
    assert "no limits" in client.run("budget", "list").stderr
    put = ("budget", "put", "users", "2", "--subject", "each user", "--period", "day", "--timezone", "UTC")
    shown = client.document(*put, "--action", "warn@80", "--action", "refuse@100")
    assert shown == account("GET", f"{limits}/users")["limit"]
    assert (shown["subjects"], shown["actions"]) == (["each user"], ["warn@80", "refuse@100"])
    assert re.search(r"users +each user +\$0\.00 / \$2\.00 +day \(UTC\)", client.run("budget", "list").stdout)
    assert "$2.50 more" in client.run("budget", "ask", "users", "2.50", "--until", "2d", "--note", "A launch").stderr
    (asked,) = account("GET", f"{limits}/users/requests")["requests"]
    assert (asked["amount"], asked["note"]) == ("2.5", "A launch")
    assert client.document("budget", "raise", "users", "3", "--until", "2099-01-01")["limit"] == "5"
    assert account("GET", f"{limits}/users/requests")["requests"] == []
    client.run("budget", "delete", "users")
    assert account("GET", limits)["limits"] == []
    assert "not an amount" in client.refused("budget", "raise", "users", "much", "--until", "1d")


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
    assert re.search("Usage: +organization", finished.stdout) and "last 7d" in finished.stdout


def test_usage_of_an_organization_is_narrowed_and_split_like_that_of_the_account(
    client: Client, account: Account
) -> None:
    account.use_model(2)
    account("POST", "/projects", {"name": "Second", "organizationId": account.organization_id})
    key_id = account.list_keys()[account.email.partition("@")[0]]["id"]
    whole = ("usage", "-o", account.organization_id)
    assert "Requests: 0" in client.run(*whole, "-p", "second").stdout
    assert "Requests: 2" in client.run(*whole, "-p", account.project_id).stdout
    assert [report["projectName"] for report in client.document(*whole, "-p", "second")] == ["Second"]
    assert "Requests: 2" in client.run(*whole, "-k", key_id).stdout
    assert "no API key key_other" in client.refused(*whole, "-k", "key_other")
    assert key_id in client.run(*whole, "--by", "key").stdout
    assert "sandbox-echo (sandbox)" in client.run(*whole, "--by", "model").stdout
    assert "█" in client.run(*whole, "--plot").stdout
    assert "project 'other'" in client.refused(*whole, "-p", "other")


def test_usage_is_that_of_the_default_organization(client: Client, account: Account) -> None:
    account.use_model(2)
    account("POST", "/projects", {"name": "Second", "organizationId": account.organization_id})
    before = client.document("usage", "--by", "model")
    client.run("orgs", "use", account.organization_id)
    assert client.document("usage", "--by", "model") == before
    assert "Second" in client.run("usage").stdout


def test_keys_of_one_name_are_told_apart(client: Client, account: Account) -> None:
    keys = [account.make_key("Twin") for _ in range(2)]
    for key in keys:
        account.key = key["token"]
        account.use_model()
    for columns in (70, 200):
        with client.terminal("usage", "--by", "key", columns=columns) as terminal:
            text = terminal.end()
        assert all(key["id"] in text for key in keys)


def test_a_model_at_two_providers_is_two_lines(service: FakeService, service_client: Client) -> None:
    parts = [{**FIGURES, "id": "m", "provider": provider} for provider in ("one", "two")]
    service.script(Answer(200, {"activity": [{**FIGURES, "date": TODAY, "errorCount": 0, "modelBreakdown": parts}]}))
    text = service_client.run("usage", "--by", "model").stdout
    assert "m (one)" in text and "m (two)" in text


def test_options_before_a_subcommand_are_refused(service: FakeService, service_client: Client) -> None:
    message = service_client.refused("usage", "-p", "project_1", "sources", code=2)
    assert "Give the options after `sources`" in message and service.calls == []


def test_a_new_key_belongs_to_the_default_organization(service: FakeService, service_client: Client) -> None:
    places = {"organizations": [{"id": f"org_{number}", "name": f"Acme {number}"} for number in (1, 2)]}
    first = {"projects": [{"id": "project_1", "name": "Web"}]}
    second = {"projects": [{"id": "project_2", "name": "Web"}]}
    service_client.configure(defaultProjectId="project_1", defaultOrgId="org_1")
    service.script(Answer(200, places), Answer(200, second))
    service_client.run("orgs", "use", "Acme 2")
    assert "defaultProjectId" not in service_client.config
    service.script(Answer(200, places), Answer(200, second))
    service_client.run("keys", "create", "-d", "x")
    assert service.calls[-1].body == {"description": "x", "projectId": "project_2"}
    # The default project of the chosen organization stays.
    service_client.configure(defaultProjectId="project_1", defaultOrgId="org_2")
    service.script(Answer(200, places), Answer(200, first))
    service_client.run("orgs", "use", "org_1")
    assert service_client.config["defaultProjectId"] == "project_1"


@pytest.mark.parametrize("command", ["budget", "guardrails", "routes"])
def test_a_command_about_one_organization_uses_the_default_one(
    command: str, service: FakeService, service_client: Client
) -> None:
    places = [{"id": f"org_{number}", "name": f"Acme {number}"} for number in (1, 2)]
    service.script(Answer(200, {"organizations": places}))
    assert "-o ORG" in service_client.refused(command, "list")
    service_client.configure(defaultOrgId="org_2")
    service.script(Answer(200, {"organizations": places}), Answer(200, {"limits": [], "guardrails": [], "routes": []}))
    service_client.run(command, "list")
    assert "/orgs/org_2/" in service.calls[-1].path


@pytest.mark.parametrize("command", [("keys", "list"), ("usage",), ("usage", "sources"), ("logs",)], ids=" ".join)
def test_a_project_is_named_or_refused(command: tuple[str, ...], client: Client, account: Account) -> None:
    (name,) = {project["name"] for project in client.document("projects", "list")}
    client.run(*command, "-p", name.upper())
    assert "project 'banana'" in client.refused(*command, "-p", "banana")
    assert "no project proj_banana" in client.refused(*command, "-p", "proj_banana")


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
    ("keys", "create", "-d", "x", "-p", "project_1"): ["POST /keys/api"],
    ("keys", "list"): ["GET /keys/api?filter=mine&limit=500", "GET /orgs", "GET /orgs/org_1/projects"],
    ("keys", "list", "-p", "project_1", "--all", "--json"): ["GET /keys/api?projectId=project_1&filter=all&limit=500"],
    ("keys", "update", "key_1", "--activate"): ["PATCH /keys/api/key_1"],
    ("keys", "limit", "key_1", "-l", "1"): ["PATCH /keys/api/limit/key_1"],
    ("keys", "limit", "CI", "-l", "1"): ["GET /keys/api?limit=500", "PATCH /keys/api/limit/key_1"],
    ("keys", "roll", "ci", "-y"): ["GET /keys/api?limit=500", "POST /keys/api/key_1/roll"],
    ("usage", "-k", "CI"): ["GET /keys/api?limit=500", "GET /activity?timeRange=7d&apiKeyId=key_1"],
    ("keys", "roll", "key_1", "-y"): ["POST /keys/api/key_1/roll"],
    ("keys", "delete", "key_1", "-y"): ["DELETE /keys/api/key_1"],
    ("budget", "get", "key_1", "-p", "project_1"): ["GET /keys/api?projectId=project_1&limit=500"],
    ("usage",): ["GET /activity?timeRange=7d"],
    ("usage", "-p", "project_1", "-k", "key_1", "--by", "key", "-r", "1h"): [
        "GET /activity?timeRange=1h&apiKeyId=key_1&groupBy=apiKey&projectId=project_1"
    ],
    ("usage", "--by", "model", "--days", "3"): ["GET /activity?days=3&groupBy=model"],
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
    ("usage", "sources", "-p", "project_1"): ["GET /activity/sources?projectId=project_1&timeRange=7d"],
    ("usage", "sources", "-p", "project_1", "--from", "2026-01-01", "--to", "2026-01-02"): [
        "GET /activity/sources?projectId=project_1&from=2026-01-01&to=2026-01-02"
    ],
}


@pytest.mark.parametrize("arguments", REQUESTS, ids=" ".join)
def test_a_command_sends_exactly_these_requests(
    arguments: tuple[str, ...], service: FakeService, service_client: Client
) -> None:
    service_client.run(*arguments)
    assert service.lines == REQUESTS[arguments]


def test_a_long_list_of_keys_is_read_in_pages(service: FakeService, service_client: Client) -> None:
    def page(number: int, following: str | None) -> Answer:
        return Answer(200, {"apiKeys": [{**KEY, "id": f"key_{number}"}], "next": following})

    service.script(page(1, "key_1"), page(2, "key_2"), page(3, None))
    listed = service_client.document("keys", "list", "--all")
    assert [key["id"] for key in listed] == ["key_1", "key_2", "key_3"]
    query = "GET /keys/api?filter=all&limit=500"
    assert service.lines == [query, f"{query}&cursor=key_1", f"{query}&cursor=key_2"]
    service.script(page(1, "key_1"), page(2, "key_2"))
    assert "CI" in service_client.run("budget", "get", "key_2").stdout
    service.script(page(1, "key_1"), page(1, "key_1"))  # a service that repeats itself
    assert len(service_client.document("keys", "list")) == 2


def test_the_default_project_is_used_for_new_keys_and_usage_alone(service: FakeService, service_client: Client) -> None:
    service_client.configure(defaultProjectId="project_1")
    for command in (("keys", "create", "-d", "x"), ("usage",), ("usage", "sources"), ("keys", "list")):
        service_client.run(*command)
    service_client.run("budget", "get", "key_1")
    assert service.calls[0].body == {"description": "x", "projectId": "project_1"}
    assert service.lines[1:] == [
        "GET /activity?timeRange=7d&projectId=project_1",
        "GET /activity/sources?projectId=project_1&timeRange=7d",
        "GET /keys/api?filter=mine&limit=500",
        "GET /orgs",
        "GET /orgs/org_1/projects",
        "GET /keys/api?limit=500",
    ]


def test_values_are_sent_as_they_were_typed(service: FakeService, service_client: Client) -> None:
    service_client.run(
        "keys", "create", "-d", "CI", "-p", "project_1", "-l", "49.90", "--period-limit", "10", "-e", "2099-01-01"
    )
    service_client.run("keys", "limit", "key_1", "--period-limit", "5", "--period", "12 hours")
    service_client.run("budget", "set", "key_1", "--clear")
    created, limited, cleared = (call.body for call in service.calls)
    assert created == {
        "description": "CI",
        "projectId": "project_1",
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
    ("usage", "sources", "-p", "project_1", "-r", "24h"): "7d, 30d",
    ("usage", "sources", "-p", "project_1", "--to", "2026-01-01"): "--from",
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
