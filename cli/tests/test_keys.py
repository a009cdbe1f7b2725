"""`keys` and `budget` against a gateway; the results are read back through the management API."""

import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from harness.accounts import Account
from harness.client_runs import Client

TOKEN = re.compile(r"llmgtwy_[A-Za-z0-9_-]{40}")


def test_a_created_key_works_and_has_what_was_given(client: Client, account: Account) -> None:
    limits = ("-l", "49.99", "--period-limit", "10", "--period", "2weeks", "-e", "30d")
    created = client.document("keys", "create", "-d", " CI ", "-p", account.project_id, *limits)
    assert account.key_works(created["token"])
    stored = account.list_keys()["CI"]
    assert {name: created[name] for name in stored} == stored
    assert (stored["usageLimit"], stored["periodUsageLimit"]) == ("49.99", "10")
    assert (stored["periodUsageDurationValue"], stored["periodUsageDurationUnit"]) == (2, "week")
    left = datetime.fromisoformat(stored["expiresAt"]) - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30)


def test_the_token_is_shown_once_with_a_warning(client: Client, account: Account) -> None:
    finished = client.run("keys", "create", "-d", "Plain", "--period-limit", "10")
    (token,) = TOKEN.findall(finished.stdout)
    assert account.key_works(token)
    assert "will not be shown again" in finished.stderr
    assert "$10.00 per month" in finished.stdout
    assert token not in client.run("keys", "list", "--all").stdout
    assert account.list_keys()["Plain"]["projectId"] == account.project_id


def test_a_key_for_a_colleague_belongs_to_them_and_is_not_stored_here(client: Client, account: Account) -> None:
    colleague = account.colleague("anna")
    members = account("GET", f"/orgs/{account.organization_id}/members")["members"]
    (anna,) = [member for member in members if member["email"].startswith("anna-")]
    finished = client.run("keys", "create", "-d", "Anna's notebook", "-m", anna["email"].upper(), "-l", "10")
    (token,) = TOKEN.findall(finished.stdout)
    assert account.key_works(token)
    assert "This computer now uses it" not in finished.stderr and token not in client.config.values()
    (key,) = account("GET", "/keys/api?filter=mine", token=colleague)["apiKeys"]
    assert (key["description"], key["usageLimit"]) == ("Anna's notebook", "10")
    client.run("keys", "create", "-d", "By id", "--member", anna["id"])
    mine = account("GET", "/keys/api?filter=mine", token=colleague)["apiKeys"]
    assert {key["description"] for key in mine} == {"Anna's notebook", "By id"}
    unknown = client.refused("keys", "create", "-d", "x", "-m", "nobody@example.com")
    assert "no member 'nobody@example.com'" in unknown and "invitation" in unknown


def test_the_description_is_requested(client: Client, account: Account) -> None:
    with client.terminal("keys", "create") as terminal:
        terminal.answer("Description:", "Typed")
        terminal.end()
    assert "Typed" in account.list_keys()
    assert "-d TEXT" in client.refused("keys", "create")


def test_the_default_project_beats_the_only_one_and_the_option_beats_both(client: Client, account: Account) -> None:
    body = {"name": "Second", "organizationId": account.organization_id}
    second = account("POST", "/projects", body)["project"]["id"]
    assert "terminal to choose" in client.refused("keys", "create", "-d", "No project")
    with client.terminal("keys", "create", "-d", "Picked") as terminal:
        terminal.answer("Which project?", "9")
        terminal.answer("Type a number from 1 to 2.", "2")
        text = terminal.end()
    picked = re.search(r"2\. .*\((\S+)\)", text)
    assert picked and picked[1] in text.partition("created")[2]
    client.run("projects", "use", second)
    assert client.document("keys", "create", "-d", "Default")["projectId"] == second
    assert client.document("keys", "create", "-d", "Named", "-p", account.project_id)["projectId"] == account.project_id


REFUSED = {
    "period alone": (("keys", "create", "-d", "x", "--period", "1d"), "--period-limit"),
    "bad period": (("keys", "create", "-d", "x", "--period-limit", "1", "--period", "1y"), "12h, 1d, 2w or 1mo"),
    "long period": (("keys", "create", "-d", "x", "--period-limit", "1", "--period", "13mo"), "1 to 12 months"),
    "no period": (("keys", "create", "-d", "x", "--period-limit", "1", "--period", "0d"), "1 to 365 days"),
    "bad limit": (("keys", "create", "-d", "x", "-l", "ten"), "not an amount"),
    "negative limit": (("keys", "create", "-d", "x", "-l", "-1"), "not an amount"),
    "bad expiry": (("keys", "create", "-d", "x", "-e", "soon"), "neither a duration nor a date"),
    "no such day": (("keys", "create", "-d", "x", "-e", "2099-02-30"), "neither a duration nor a date"),
    "past expiry": (("keys", "create", "-d", "x", "-e", "2020-01-01"), "not in the future"),
    "empty description": (("keys", "create", "-d", " "), "description is empty"),
    "no change": (("keys", "update", "key"), "nothing to change"),
    "both states": (("keys", "update", "key", "--activate", "--deactivate"), "--activate and --deactivate"),
    "no limit": (("keys", "limit", "key"), "nothing to set"),
    "no limit and a period": (("keys", "limit", "key", "--period-limit", "none", "--period", "1d"), "without a limit"),
    "no budget": (("budget", "set", "key"), "nothing to set"),
    "clear and set": (("budget", "set", "key", "--clear", "-l", "1"), "--clear"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_refused_without_a_request(case: str, tmp_path, client: Client) -> None:
    arguments, text = REFUSED[case]
    # Nothing listens there: a request would end with another message.
    nowhere = {"LLMGATEWAY_API_URL": "http://127.0.0.1:1"}
    client.configure(sessionApiUrl="http://127.0.0.1:1")
    assert text in client.refused(*arguments, **nowhere)


def test_keys_are_listed(client: Client, account: Account) -> None:
    period = {"periodUsageLimit": "5", "periodUsageDurationValue": 1, "periodUsageDurationUnit": "day"}
    account.make_key("Listed", usageLimit="50", expiresAt="2099-01-01T00:00:00Z", **period)
    deleted = account.make_key("Deleted")["id"]
    account("DELETE", f"/keys/api/{deleted}")
    finished = client.run("keys", "list", "-p", account.project_id)
    header, rule, *rows = finished.stdout.splitlines()
    assert header.split() == [
        *("DESCRIPTION", "ID", "STATUS", "SPEND", "/", "BUDGET", "PERIOD", "EXPIRES", "OWNER", "PROJECT", "TOKEN")
    ]
    assert header.startswith("  DESC") and set(rule) == {" ", "-"}
    assert any("Listed" in row and "$0.00 / $50.00" in row and "2099-01-01 00:00" in row for row in rows)
    (row,) = [row for row in rows if "Listed" in row]
    (project,) = client.document("projects", "list")
    assert "$0.00 / $5.00 per day" in row and account.email in row and project["name"] in row
    listed = client.document("keys", "list", "--all")
    assert {key["description"] for key in listed} == set(account.list_keys()) and "Deleted" not in finished.stdout
    assert "token" not in listed[0]


def test_an_expired_key_is_listed_as_expired(client: Client, account: Account) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    key = account.make_key("Short-lived", expiresAt=soon.isoformat())
    deadline = time.monotonic() + 60
    while account.key_works(key["token"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    (row,) = [line for line in client.run("keys", "list").stdout.splitlines() if key["id"] in line]
    assert row.split()[2] == "expired"


def test_a_key_is_deactivated_and_activated(client: Client, account: Account) -> None:
    key = account.make_key("Switched")
    assert "is now inactive" in client.run("keys", "update", key["id"], "--deactivate").stderr
    assert not account.key_works(key["token"])
    updated = client.document("keys", "update", key["id"], "--activate", "-e", "2099-01-01")
    assert updated["expiresAt"] == account.list_keys()["Switched"]["expiresAt"] == "2099-01-01T00:00:00.000Z"
    assert account.key_works(key["token"])


def test_a_key_that_an_owner_deactivated_is_not_activated_by_its_developer(client: Client, account: Account) -> None:
    developer = account.colleague("switched")
    make = {"description": "Of a developer", "projectId": account.project_id}
    key_id = account("POST", "/keys/api", make, developer)["apiKey"]["id"]
    assert "is now inactive" in client.run("keys", "update", key_id, "--deactivate").stderr
    client.run("keys", "update", key_id, "-e", "2070-01-01")
    client.configure(sessionToken=developer)
    assert "deactivated by another person" in client.refused("keys", "update", key_id, "--activate")
    assert "expiry of this key was set by another person" in client.refused(
        "keys", "update", key_id, "-e", "2080-01-01"
    )


@pytest.mark.parametrize("command", [("keys", "limit"), ("budget", "set")])
def test_limits_are_set_shown_and_cleared(command: tuple[str, str], client: Client, account: Account) -> None:
    key_id = account.make_key("Limited")["id"]
    finished = client.run(*command, key_id, "-l", "49.99", "--period-limit", "5", "--period", "1d")
    assert "$0.00 / $49.99" in finished.stdout and "$0.00 / $5.00 per day" in finished.stdout
    shown = client.document("budget", "get", key_id, "-p", account.project_id)
    assert shown == {name: account.list_keys()["Limited"][name] for name in shown}
    assert list(shown) == [
        *("id", "description", "usage", "usageLimit", "periodUsageLimit"),
        *("periodUsageDurationValue", "periodUsageDurationUnit", "currentPeriodUsage"),
    ]
    client.run(*command, key_id, "--clear")
    stored = account.list_keys()["Limited"]
    assert [stored[name] for name in shown if "Limit" in name or "Duration" in name] == [None] * 4
    assert "limit not set" in client.run("budget", "get", key_id).stdout
    assert "no API key" in client.refused("budget", "get", "unknown")


def test_rolling_needs_a_confirmation(client: Client, account: Account) -> None:
    key = account.make_key("Rolled")
    assert "-y" in client.refused("keys", "roll", key["id"])
    with client.terminal("keys", "roll", key["id"]) as terminal:
        terminal.answer("[y/N]", "")
        assert "Cancelled" in terminal.end(0)
    assert account.key_works(key["token"])
    with client.terminal("keys", "roll", key["id"], columns=200) as terminal:
        terminal.answer("[y/N]", "y")
        (token,) = TOKEN.findall(terminal.end(0))
    assert not account.key_works(key["token"]) and account.key_works(token)
    again = client.document("keys", "roll", key["id"], "-y")
    assert account.key_works(again["token"]) and not account.key_works(token)


def test_deleting_needs_a_confirmation(client: Client, account: Account) -> None:
    key = account.make_key("Deleted")
    assert "-y" in client.refused("keys", "delete", key["id"], typed="y\n")
    with client.terminal("keys", "delete", key["id"], columns=40) as terminal:
        terminal.answer("[y/N]", "no")
        terminal.end(0)
    assert account.key_works(key["token"])
    assert client.run("keys", "delete", key["id"], "-y").stdout == ""
    assert not account.key_works(key["token"]) and "Deleted" not in account.list_keys()
    message = client.refused("keys", "delete", key["id"], "-y")
    assert "Request id: " in message


def test_text_that_is_no_id_stays_one_part_of_the_path(client: Client, account: Account) -> None:
    key = account.make_key("Kept")
    client.refused("keys", "delete", f"../api/{key['id']}", "-y")
    assert "Kept" in account.list_keys()


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [{}, {"NO_COLOR": "1"}], ids=["colored", "plain"])
def test_a_list_fits_the_terminal(columns: int, plain: dict[str, str], client: Client, account: Account) -> None:
    key = account.make_key("A rather long description of a key for the nightly build of the web shop\x1b[31m")
    with client.terminal("keys", "list", columns=columns, **plain) as terminal:
        text = terminal.end()
    assert max(len(line) for line in text.splitlines() if not line.startswith("info: ")) <= columns
    assert key["id"] in text.replace("\n", "").replace(" ", "")
    assert "\x1b[31m" not in terminal.output
    assert ("\x1b[" in terminal.output) is (not plain)


def test_a_list_in_a_pipe_is_plain_and_whole(client: Client, account: Account) -> None:
    description = "A rather long description of a key for the nightly build of the web shop"
    account.make_key(description)
    assert description in client.run("keys", "list").stdout
    assert json.loads(client.run("--json", "keys", "list").stdout) == client.document("keys", "list")


def test_a_list_is_that_of_the_person_and_with_all_that_of_everybody(client: Client, account: Account) -> None:
    account.make_key("Of the owner")
    developer = account.colleague("dev")
    make = {"description": "Of a developer", "projectId": account.project_id}
    account("POST", "/keys/api", make, developer)
    owner = {key["description"] for key in client.document("keys", "list")}
    assert "Of the owner" in owner and "Of a developer" not in owner
    everybody = {key["description"] for key in client.document("keys", "list", "--all")}
    assert everybody == owner | {"Of a developer"}
    client.configure(sessionToken=developer)
    assert {key["description"] for key in client.document("keys", "list")} == {"Of a developer"}
    assert "Only owners and admins" in client.refused("keys", "list", "--all")


def test_a_changed_limit_keeps_its_period(client: Client, account: Account) -> None:
    key_id = account.make_key("Daily")["id"]
    client.run("keys", "limit", key_id, "--period-limit", "5")
    assert account.list_keys()["Daily"]["periodUsageDurationUnit"] == "month"
    client.run("keys", "limit", key_id, "--period-limit", "5", "--period", "1d")
    assert "$7.00 per day" in client.run("keys", "limit", key_id, "--period-limit", "7").stdout
    assert "$7.00 per 2 weeks" in client.run("budget", "set", key_id, "--period", "2w").stdout
    client.run("keys", "limit", key_id, "-l", "9", "--period-limit", "none")
    stored = account.list_keys()["Daily"]
    assert (stored["usageLimit"], stored["periodUsageLimit"], stored["periodUsageDurationUnit"]) == ("9", None, None)
    client.run("keys", "limit", key_id, "-l", "none")
    assert account.list_keys()["Daily"]["usageLimit"] is None
    assert "Give --period-limit" in client.refused("keys", "limit", key_id, "--period", "1d")


def test_an_expiry_is_changed_and_removed(client: Client, account: Account) -> None:
    key_id = account.make_key("Expiring", expiresAt="2099-01-01T00:00:00Z")["id"]
    assert "expires 2098-01-01" in client.run("keys", "update", key_id, "-e", "2098-01-01").stderr
    assert "does not expire" in client.run("keys", "update", key_id, "-e", "never").stderr
    stored = account.list_keys()["Expiring"]
    assert (stored["expiresAt"], stored["status"]) == (None, "active")


def test_a_new_key_is_used_at_once(client: Client, account: Account) -> None:
    assert "keys create" in client.refused("chat", "hi")
    token = client.document("keys", "create", "-d", "For a script")["token"]
    assert "apiKey" not in client.config
    finished = client.run("keys", "create", "-d", "Laptop")
    assert client.config["apiKey"] in finished.stdout
    assert client.run("chat", "-m", "sandbox-echo", "hi").stdout.strip() == "hi"
    client.run("keys", "create", "-d", "Another")
    assert client.config["apiKey"] in finished.stdout
    other = client.document("keys", "create", "-d", "Chosen", "--save")["token"]
    assert client.config["apiKey"] == other != token
    client.configure(apiKey="")
    client.run("keys", "create", "-d", "For somebody", "--no-save")
    assert not client.config["apiKey"]


def test_rolling_the_own_key_says_that_it_is_invalid_here(client: Client, account: Account) -> None:
    client.run("keys", "create", "-d", "Own")
    own = account.list_keys()["Own"]["id"]
    other = account.make_key("Other")["id"]
    assert "auth login --key" not in client.run("keys", "roll", other, "-y").stderr
    assert "auth login --key" in client.run("keys", "roll", own, "-y").stderr


def test_what_requests_reserve_of_a_limit_is_set_with_it_and_alone(client: Client, account: Account) -> None:
    made = client.document("keys", "create", "-d", "Laptop", "-l", "5", "--reservation", "exact")
    assert account.list_keys()["Laptop"]["reservation"] == "exact"
    client.run("keys", "limit", made["id"], "--reservation", "likely")
    assert account.list_keys()["Laptop"]["reservation"] == "likely"
    assert "the likely cost of each request" in client.run("budget", "get", "Laptop").stdout
    assert client.document("budget", "set", "Laptop", "--reservation", "exact")["usageLimit"] == "5"
    assert account.list_keys()["Laptop"]["reservation"] == "exact"


KEY_COMMANDS = {
    "limit": ("keys", "limit", "{key}", "-l", "5"),
    "budget set": ("budget", "set", "{key}", "-l", "5"),
    "budget get": ("budget", "get", "{key}"),
    "update": ("keys", "update", "{key}", "-e", "2099-01-01"),
    "usage": ("usage", "-k", "{key}"),
    "logs": ("logs", "-k", "{key}"),
    "roll": ("keys", "roll", "{key}", "-y"),
    "delete": ("keys", "delete", "{key}", "-y"),
}


@pytest.mark.parametrize("case", KEY_COMMANDS)
def test_a_key_is_given_by_its_description_where_that_is_unique(case: str, client: Client, account: Account) -> None:
    def line(key: str) -> list[str]:
        return [word.format(key=key) for word in KEY_COMMANDS[case]]

    account.make_key("My laptop / 50% of Zoë's?")
    client.run(*line("my LAPTOP / 50% of Zoë's?"))
    assert "no API key 'My lap top'" in client.refused(*line("My lap top"))
    account.make_key("Twice")
    account.make_key("Twice")
    assert "Several API keys" in client.refused(*line("Twice"))
