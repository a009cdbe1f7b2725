"""Answers of derived commands as tables: each row has the columns that identify it."""

import json
import re
from types import EllipsisType

import pytest
from support.commands import Run

from gateway.surfaces.web.answer_structs import to_camel

Row = dict[str, str | EllipsisType]

pytestmark = pytest.mark.parametrize("run", ["sqlite"], indirect=True)


def rows_of(table: str) -> list[dict[str, str]]:
    """Return the rows of a printed table: cells by their column."""
    header, *lines = (re.split(" {2,}", line.strip()) for line in table.splitlines())
    return [dict(zip(map(str.lower, header), line, strict=True)) for line in lines]


def check_table(run: Run, words: str, *expected: Row) -> None:
    """Run a command that prints a table. The value ... stands for what the command says with --json."""
    answers = json.loads(run(*words.split(), "--json"))
    shown = rows_of(run(*words.split()))
    for row, answer, cells in zip(expected, answers if isinstance(answers, list) else [answers], shown, strict=True):
        told = {name: answer[to_camel(name.replace(" ", "_"))] or "-" for name, cell in row.items() if cell is ...}
        assert cells == row | told


@pytest.fixture
def organization(run: Run) -> str:
    (only,) = json.loads(run("organizations", "list", "--json"))
    return str(only["id"])


@pytest.fixture
def project(run: Run) -> str:
    (only,) = json.loads(run("projects", "list", "--json"))
    return str(only["id"])


def test_organizations_and_projects(run: Run, organization: str, project: str) -> None:
    run("organizations", "rename", organization, "Acme Labs")
    check_table(
        run, "organizations list", {"id": organization, "status": "active", "created at": ..., "name": "Acme Labs"}
    )
    run("projects", "set", project, "--cache", "--cache-ttl", "90", "--name", "Apps", "--retention", "retain")
    cached: Row = {"mode": "credits", "caching enabled": "yes", "cache duration seconds": "90", "retention": "retain"}
    check_table(run, "projects list", {"id": project, "status": "active", **cached, "name": "Apps"})


def test_a_member_is_exported_and_erased(run: Run, organization: str) -> None:
    member = run("members", "add", organization, "boss@example.com")
    assert json.loads(run("members", "export", member, "--json"))["member"]["email"] == "boss@example.com"
    assert "boss@example.com" in run("members", "export", member)
    (erased,) = rows_of(run("members", "delete", member))
    assert (erased["member id"], erased["keys"], erased["account deleted"]) == (member, "0", "yes")
    assert "boss@example.com" not in run("members", "list") + run("audit", "list")


def test_members_and_teams(run: Run, organization: str) -> None:
    member = run("members", "add", organization, "boss@example.com", "--role", "admin")
    owner = json.loads(run("members", "list", "--json"))[0]["id"]
    people: list[Row] = [
        {"id": owner, "role": "owner", "status": "active", "email": "owner@localhost"},
        {"id": member, "role": "admin", "status": "inactive", "email": "boss@example.com"},
    ]
    run("members", "deactivate", member)
    check_table(run, "members list", *(row | {"user id": ..., "attributes": "-"} for row in people))
    team = run("teams", "create", organization, "Builders")
    run("teams", "add", team, member)
    run("limits", "set", team, "--total", "20")
    members: Row = {"organization id": organization, "member ids": member, "usage limit": "20"}
    check_table(run, "teams list", {"id": team, **members, "name": "Builders"})


def test_keys_and_their_caps(run: Run, organization: str, project: str) -> None:
    run("keys", "create", "--description", "Nightly", "--expires", "2030-01-31", "--kind", "customer")
    run("keys", "create", "--description", "Mine", "--kind", "user")
    key: Row = {"state": "active", "masked token": ..., "project id": project, "id": ...}
    check_table(
        run,
        "keys list",
        {**key, "kind": "user", "expires at": "-", "description": ...},
        {**key, "kind": "customer", "expires at": "2030-01-31T00:00:00.000Z", "description": "Nightly"},
        {**key, "kind": "user", "expires at": "-", "description": "Mine"},
    )
    run("organizations", "key-caps", organization, "--max", "50", "--per-member", "5")
    caps: Row = {"current count": "3", "max keys": "50", "max keys per member": "5"}
    check_table(run, f"organizations key-caps {organization}", caps)


def test_limits_budgets_and_rates(run: Run, project: str) -> None:
    (key,) = (one["id"] for one in json.loads(run("keys", "list", "--json")))
    words = f"limits set {key} --total 10 --amount 2.5 --period 3d --alert-at 50,80"
    limits: Row = {"usage limit": "10", "usage": "0", "period usage limit": "2.5", "alert thresholds": "50,80"}
    period: Row = {"period usage duration value": "3", "period usage duration unit": "day"}
    now: Row = {"current period usage": "0", "current period reset at": "-"}
    check_table(run, words, {"id": key, **limits, **period, **now})
    for subject in (key, project):
        run("session-budgets", "set", subject, "--session", "4", "--run", "1.5")
        check_table(run, f"session-budgets show {subject}", {"id": subject, "session budget": "4", "run budget": "1.5"})
        run("session-budgets", "clear", subject)
        check_table(run, f"session-budgets show {subject}", {"id": subject, "session budget": "-", "run budget": "-"})
    run("rates", "set", "project", project, "tokens", "60000")
    check_table(run, "rates show", {"scope": "project", "subject": project, "kind": "tokens", "amount": "60000"})


def test_money(run: Run, organization: str) -> None:
    run("credits", "grant", "5", "--note", "May", "--reference", "order-1")
    posted: Row = {"at": ..., "kind": "grant"}
    check_table(
        run,
        "credits history",
        {**posted, "amount": "5", "note": "May", "reference": f"api:{organization}:order-1"},
        {**posted, "amount": "100", "note": ..., "reference": ...},
    )
    run("discounts", "set", "0.2", "--provider", "sandbox", "--from", "2026-01-01", "--to", "2026-02-01")
    span: Row = {"starts at": "2026-01-01T00:00:00.000Z", "ends at": "2026-02-01T00:00:00.000Z"}
    run("discounts", "set", "0.1", "--model", "sandbox-echo", "--organization", organization)
    run("organizations", "create", "Another, which has the discount of all too")
    check_table(
        run,
        "discounts list",
        {"id": ..., "organization id": "*", "provider": "sandbox", "model": "*", "fraction": "0.2", **span},
        {"id": ..., "organization id": organization, "provider": "*", "model": "sandbox-echo", "fraction": "0.1",
         "starts at": "-", "ends at": "-"},
    )  # fmt: skip


def test_providers_and_access_rules(run: Run, organization: str) -> None:
    run(
        *("provider-keys", "add", organization, "groq", "--label", "Ours", "--max-spend", "2.5", "--region", "eu"),
        *("--base-url", "https://groq.example.com/v1"),
        typed="sk-secret-of-groq\n",
    )
    place: Row = {"region": "eu", "base url": "https://groq.example.com/v1", "max spend": "2.5", "spent": "0"}
    own: Row = {"id": ..., "provider": "groq", "status": "active", "masked token": ..., "name": "Ours", **place}
    check_table(run, f"provider-keys list {organization}", own)
    address = "https://engine.example.com/v1"
    run("custom-providers", "add", organization, "house", address, "--models", '[{"id": "small"}, {"id": "large"}]')
    house: Row = {"name": "house", "base url": address, "models": "small,large"}
    check_table(run, f"custom-providers list {organization}", house)
    rule = run("rules", "add", "organization", organization, "deny_models", '{"models": ["large"]}')
    denied: Row = {"rule type": "deny_models", "rule value": '{"models": ["large"]}'}
    scoped: Row = {"id": rule, "status": "active", "scope": "organization", "scope id": organization}
    check_table(run, f"rules list {organization}", {**scoped, **denied})


def test_alerts_and_settings(run: Run, organization: str) -> None:
    hook = run("alerts", "add", "https://ops.example.com/x", "--form", "teams", "--event", "books.differ").split()[0]
    sent: Row = {"form": "teams", "url": "https://ops.example.com/x", "events": "books.differ"}
    sent |= {"team": "-", "created at": ...}
    check_table(run, "alerts list", {"id": hook, **sent})
    changed = rows_of(run("managed-settings", "set", organization, "{}"))
    stored = json.loads(run("managed-settings", "show", organization, "--json"))
    assert changed == [{"id": organization, "updated at": stored["updatedAt"]}]


def test_automation(run: Run, project: str) -> None:
    made = run("service-accounts", "create", "Deploys", "--scope", "keys:read", "--expires", "2030-01-31")
    assert f"This is the token of {made.split()[0]}. Save it now" in made
    times: Row = {"expires at": "2030-01-31T00:00:00.000Z", "last used at": "-"}
    named: Row = {"name": "Deploys", "scopes": "keys:read"}
    check_table(run, "service-accounts list", {"id": made.split()[0], "status": "active", **times, **named})
    issuer = "https://id.example.com"
    source = ("--issuer", issuer, "--audience", "gateway", "--claims", '{"sub": "ci"}')
    made = run("workload-identities", "create", "CI", "--project", project, *source)
    identity: Row = {"id": made.split()[0], "status": "active", "project id": project, "name": "CI"}
    check_table(run, "workload-identities list", {**identity, "issuer": issuer, "audience": "gateway"})


def test_identity_providers(run: Run) -> None:
    token = run("scim-tokens", "create", "Directory", "--expires", "2030-01-31").split()[0]
    times: Row = {"expires at": "2030-01-31T00:00:00.000Z", "last used at": "-"}
    check_table(run, "scim-tokens list", {"id": token, "masked token": ..., **times, "name": "Directory"})
    issuer = "https://id.example.com"
    added = run("identity-providers", "add", "Acme", "--issuer", issuer, "--client-id", "gateway")
    provider: Row = {"id": added.split()[0], "status": "active", "issuer": issuer, "name": "Acme"}
    check_table(run, "identity-providers list", provider)
    rule = run("group-rules", "create", "engineers", "--role", "admin", "--priority", "5")
    check_table(
        run, "group-rules list", {"id": rule, "group": "engineers", "role": "admin", "priority": "5", "source": "-"}
    )


@pytest.fixture
def things(run: Run, organization: str, project: str) -> dict[str, str]:
    """Return the id of one thing for each group of commands."""
    source = ("--issuer", "https://id.example.com", "--audience", "gateway", "--claims", '{"sub": "ci"}')
    client = ("--issuer", "https://id.example.com", "--client-id", "gateway")
    added = {
        "members": run("members", "add", organization, "ada@example.com"),
        "teams": run("teams", "create", organization, "Builders"),
        "provider-keys": run("provider-keys", "add", organization, "sandbox", typed="own-key-of-the-tests"),
        "rules": run("rules", "add", "organization", organization, "deny_models", '{"models": ["large"]}'),
        "service-accounts": run("service-accounts", "create", "Deploys", "--scope", "keys:read"),
        "workload-identities": run("workload-identities", "create", "CI", "--project", project, *source),
        "scim-tokens": run("scim-tokens", "create", "Directory"),
        "identity-providers": run("identity-providers", "add", "Acme", *client),
        "group-rules": run("group-rules", "create", "engineers", "--role", "admin"),
        "alerts": run("alerts", "add", "https://ops.example.com/hook"),
        "discounts": run("discounts", "set", "0.2"),
    }
    key = json.loads(run("keys", "create", "--description", "Nightly", "--json").partition("This is")[0])["id"]
    ids = {group: output.splitlines()[0] for group, output in added.items()}
    return {**ids, "organizations": organization, "projects": project, "keys": key}


def list_of(run: Run, things: dict[str, str], group: str) -> list[dict[str, str]]:
    """Return the rows of a group's list about its thing."""
    within = [things["organizations"]] if group in ("rules", "provider-keys", "custom-providers") else []
    return [row for row in rows_of(run(group, "list", *within)) if row.get("id") == things.get(group)]


def test_a_command_shows_one_thing_as_its_list_does(run: Run, things: dict[str, str]) -> None:
    for group in (
        *("organizations", "projects", "members", "teams", "keys"),
        *("service-accounts", "workload-identities"),
    ):
        assert rows_of(run(group, "show", things[group])) == list_of(run, things, group), group


def test_objects_that_are_switched_off_are_listed_as_inactive(run: Run, things: dict[str, str]) -> None:
    for group, off, on in (
        ("members", "deactivate ID", "activate ID"),
        ("keys", "deactivate ID", "activate ID"),
        ("provider-keys", "switch ID off", "switch ID on"),
        ("rules", "switch ORGANIZATION ID off", "switch ORGANIZATION ID on"),
        ("service-accounts", "switch ID inactive", "switch ID active"),
        ("workload-identities", "switch ID inactive", "switch ID active"),
        ("identity-providers", "switch ID inactive", "switch ID active"),
    ):
        (before,) = list_of(run, things, group)
        state = "state" if group == "keys" else "status"
        for words, shown in ((off, "inactive"), (on, "active")):
            run(group, *words.replace("ORGANIZATION", things["organizations"]).replace("ID", things[group]).split())
            assert list_of(run, things, group) == [before | {state: shown}], group


def test_a_provider_key_is_changed_and_tested(run: Run, things: dict[str, str]) -> None:
    key = things["provider-keys"]
    (before,) = list_of(run, things, "provider-keys")
    place = ("--region", "eu", "--base-url", "https://engine.example.com/v1")
    run("provider-keys", "set", key, "--label", "Spare", "--max-spend", "3", *place)
    changed = {"name": "Spare", "max spend": "3", "region": "eu", "base url": "https://engine.example.com/v1"}
    assert list_of(run, things, "provider-keys") == [before | changed]
    run("provider-keys", "rotate", key, typed="newer-key-of-the-tests")
    (rotated,) = list_of(run, things, "provider-keys")
    assert (before["masked token"][:2], rotated["masked token"][:2]) == ("ow", "ne")
    (tested,) = rows_of(run("provider-keys", "test", key, "--model", "sandbox-echo"))
    assert (tested["ok"], tested["model"]) == ("yes", "sandbox-echo")


def test_automation_is_changed(run: Run, things: dict[str, str]) -> None:
    (account,) = list_of(run, things, "service-accounts")
    settings = ("--name", "Builds", "--scope", "keys:write", "--expires", "2030-01-31")
    run("service-accounts", "set", account["id"], *settings)
    changed = {"name": "Builds", "scopes": "keys:write", "expires at": "2030-01-31T00:00:00.000Z"}
    assert list_of(run, things, "service-accounts") == [account | changed]
    first, second = (run("service-accounts", "roll", account["id"]).splitlines()[0] for _ in range(2))
    assert first.startswith("llmgsa_") and second.startswith("llmgsa_") and first != second
    (identity,) = list_of(run, things, "workload-identities")
    run("workload-identities", "set", identity["id"], "--name", "Nightly")
    assert list_of(run, things, "workload-identities") == [identity | {"name": "Nightly"}]


def test_domains_of_an_identity_provider_are_added_verified_and_removed(run: Run, things: dict[str, str]) -> None:
    provider = things["identity-providers"]
    (added,) = json.loads(run("identity-providers", "add-domain", provider, "acme.example", "--json"))["domains"]
    (verified,) = json.loads(run("identity-providers", "verify-domain", provider, "acme.example", "--json"))["domains"]
    assert added["domain"] == verified["domain"] == "acme.example" and verified["verifiedAt"]
    run("identity-providers", "remove-domain", provider, "acme.example")
    (shown,) = json.loads(run("identity-providers", "list", "--json"))
    assert shown["domains"] == []
    tested = run("identity-providers", "test", provider, status=1)
    assert rows_of(tested)[0]["usable"] == "no"


def test_removed_objects_are_not_listed(run: Run, things: dict[str, str]) -> None:
    organization = things["organizations"]
    run("custom-providers", "add", organization, "house", "https://engine.example.com/v1")
    removals = {
        **dict.fromkeys(("teams", "keys", "service-accounts", "workload-identities"), "delete ID"),
        **dict.fromkeys(("identity-providers", "group-rules"), "delete ID"),
        **dict.fromkeys(("provider-keys", "alerts", "discounts"), "remove ID"),
        "scim-tokens": "revoke ID",
        "rules": "remove ORGANIZATION ID",
        "custom-providers": "remove ORGANIZATION house",
    }
    for group, words in removals.items():
        assert list_of(run, things, group), group
        run(group, *words.replace("ORGANIZATION", organization).replace("ID", things.get(group, "")).split())
        assert list_of(run, things, group) == [], group
