"""Commands that are derived from rows of the management table."""

import json
import os

import pytest

from gateway.limits.periods import AMOUNT_FIELD
from gateway.operator.command_usage import PROJECT, CommandUsage, read_usages
from gateway.surfaces.management.managed_operation import ManagedOperation
from gateway.surfaces.management.table import OPERATIONS

USAGES = [usage for row in OPERATIONS if isinstance(row, ManagedOperation) for usage in read_usages(row)]
COMMANDS = [f"{usage.group} {usage.name} {usage.operation.path}" for usage in USAGES]


@pytest.mark.parametrize("usage", USAGES, ids=COMMANDS)
def test_a_usage_line_names_all_that_its_operation_takes(usage: CommandUsage) -> None:
    known = {*usage.variables, *usage.members, "*"}
    assert {member for member, _ in usage.switches.values()} <= known
    assert usage.named <= known
    required = {name for name, member in usage.members.items() if member.required} - {PROJECT}
    assert required <= usage.named
    fields = {name for name in usage.variables if name != "organization_id"}
    assert fields <= usage.named


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_the_operator_acts_in_every_organization_and_for_each_member(run) -> None:
    second = run("organizations", "create", "Second")
    member = run("members", "add", second, "boss@example.com", "--role", "owner")
    output = run("members", "add", second, "dev@example.com")
    project = run("projects", "create", second, "Apps", "--mode", "hybrid")
    assert {"owner@localhost", "boss@example.com"} <= {
        one["email"] for one in json.loads(run("members", "list", "--json"))
    }
    assert "owner@localhost" not in run("members", "list", "--organization", second)
    keys = ("keys", "create", "--description", "CI", "--project", project)
    assert json.loads(run(*keys, "--json"))["creator"]["email"] == "boss@example.com"
    assert json.loads(run(*keys, "--member", output, "--json"))["creator"]["email"] == "dev@example.com"
    assert "There is no member" in run(*keys, "--member", "member_x", status=1)
    assert member in run("members", "set-role", output, "admin") or output in run("members", "list")
    audit = json.loads(run("audit", "list", "--json"))
    assert {"operator"} == {entry["actor"] for entry in audit if entry["action"] == "api_key.create"}


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_commands_of_one_name_run_the_operation_that_the_arguments_fit(run) -> None:
    organization = json.loads(run("organizations", "list", "--json"))[0]["id"]
    assert json.loads(run("organizations", "policy", organization)) == {}
    changed = run("organizations", "policy", organization, "--set", '{"requireSoc2": true}')
    assert json.loads(changed) == {"requireSoc2": True} == json.loads(run("organizations", "policy", organization))
    run("discounts", "set", "0.2")
    for words in ((), ("--organization", organization)):
        assert len(run("discounts", "list", *words).splitlines()) == 2
    key = json.loads(run("keys", "list", "--json"))[0]
    member = json.loads(run("members", "list", "--json"))[0]["id"]
    for subject in (key["id"], member):
        assert json.loads(run("limits", "set", subject, "--total", "5", "--json"))["usageLimit"] == "5"
    team = run("teams", "create", organization, "Research")
    assert len(json.loads(run("limits", "show", key["id"], member, team, "--json"))) == 3
    run("limits", "set", team, "--total", "6")
    assert [one["limit"] for one in json.loads(run("limits", "show", "--json")) if one["id"] == team] == ["6"]
    assert "is not the id" in run("limits", "show", organization, status=1)
    for number, subject in enumerate((organization, team)):
        run("managed-settings", "set", subject, json.dumps({"number": number}))
    assert json.loads(run("managed-settings", "show", organization)) == {"number": 0}
    run("managed-settings", "remove", organization)
    assert json.loads(run("managed-settings", "show", team)) == {"number": 1}
    run("managed-settings", "remove", team)
    assert run("managed-settings", "show", team) == ""


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_single_sign_on_of_an_organization_is_set_up_by_commands(run) -> None:
    organization = json.loads(run("organizations", "list", "--json"))[0]["id"]
    client = ("--issuer", "https://id.example.com", "--client-id", "gateway", "--client-secret", "-")
    settings = (*client, "--create-people", "--scope", "offline_access")
    added = json.loads(run("identity-providers", "add", "Acme", *settings, "--json", typed="a client secret\n"))
    provider = added["id"]
    assert added["scopes"] == ["openid", "offline_access"] and added["createPeople"] is True
    assert "a client secret" not in json.dumps(added)
    domains = json.loads(run("identity-providers", "add-domain", provider, "acme.example", "--json"))["domains"]
    assert domains[0]["verifiedAt"]
    changes = ("--groups-claim", "groups", "--no-create-people")
    changed = json.loads(run("identity-providers", "set", provider, *changes, "--json"))
    assert changed["scopes"] == added["scopes"] and changed["createPeople"] is False
    run("identity-providers", "test", provider, status=1)
    owner = run("members", "add", organization, "keeper@acme.example", "--role", "owner")
    assert "break-glass account must be" in run("sso", "require", owner, status=1)
    (seeded,) = [one for one in json.loads(run("members", "list", "--json")) if one["email"] == "owner@localhost"]
    run("members", "set-password", "owner@localhost", typed="correct horse battery\n")
    run("sso", "require", seeded["id"])
    assert json.loads(run("sso", "show", "--json")) == [{"required": True, "breakGlassMemberId": seeded["id"]}]
    run("sso", "make-optional")
    assert json.loads(run("sso", "show", "--json"))[0]["required"] is False
    rule = run("group-rules", "create", "engineers", "--role", "admin", "--limits", '{"usageLimit": "20"}')
    run("group-rules", "set", rule, "--priority", "5")
    (shown,) = json.loads(run("group-rules", "list", "--json"))
    assert (shown["group"], shown["role"], shown["usageLimit"], shown["priority"]) == ("engineers", "admin", "20", 5)
    run("group-rules", "delete", rule)
    run("identity-providers", "switch", provider, "inactive")
    assert "inactive" in run("identity-providers", "list")
    run("identity-providers", "delete", provider)
    assert json.loads(run("identity-providers", "list", "--json")) == []


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_a_list_leaves_the_rows_of_workers_alone(run, open_store) -> None:
    store = open_store(os.environ["DATABASE_URL"])
    store.write(
        lambda: store.execute("CREATE TRIGGER refuse BEFORE DELETE ON worker BEGIN SELECT RAISE(ABORT, 'no'); END")
    )
    store.write(
        lambda: store.execute("INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (0, '', 0, 0)")
    )
    assert "owner@localhost" in run("members", "list")


PERIODS = {
    "invite": ("members", "invite", "{organization}", "new@example.com"),
    "key": ("keys", "create", "--description", "CI"),
}


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize("case", PERIODS)
def test_a_period_is_given_in_one_option_as_the_help_says(case: str, run) -> None:
    organization = json.loads(run("organizations", "list", "--json"))[0]["id"]
    words = [word.format(organization=organization) for word in PERIODS[case]]
    words += ["--period-usage-limit", "5", "--json"]
    option = "--period-usage-duration-value"
    assert "12h or 1mo" in run(*words[:2], "--help")
    made = json.loads(run(*words, option, "12h"))
    assert (made["periodUsageDurationValue"], made["periodUsageDurationUnit"]) == (12, "hour")
    made = json.loads(run(*words, option, "1mo"))
    assert (made["periodUsageDurationValue"], made["periodUsageDurationUnit"]) == (1, "month")
    made = json.loads(run(*words, option, "3", "--period-usage-duration-unit", "day"))
    assert (made["periodUsageDurationValue"], made["periodUsageDurationUnit"]) == (3, "day")
    assert "12h, 1d, 2w or 1mo" in run(*words, option, "soon", status=1)
    for unit, status in (("hour", 0), ("day", 1)):
        assert "hour" in run(*words, option, "12h", "--period-usage-duration-unit", unit, status=status)


def test_every_option_of_a_length_accepts_what_its_help_says() -> None:
    single = {usage.group for usage in USAGES for members in usage.options.values() if members == (AMOUNT_FIELD,)}
    assert single == {"keys", "members"}
