"""Every command speaks JSON, and every hint names the command as it is called here."""

import json
import re
from collections.abc import Iterator

import click
import pytest

from gateway.configuration.settings import MANAGE, ROOT
from gateway.operator import command as manage


def walk(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from walk(command, *path, name)
        elif command is not None:
            yield " ".join((*path, name)), command


def test_every_command_takes_json() -> None:
    commands = dict(walk(manage.main))
    assert len(commands) > 80
    assert [
        name
        for name, command in commands.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_changing_commands_show_the_change_as_json(run, capsys) -> None:
    def ask(*words: str, typed: str = "", status: int = 0) -> dict:
        return json.loads(run(*words, "--json", typed=typed, status=status))

    organization = ask("organizations", "create", "Acme")["id"]
    assert ask("organizations", "rename", organization, "Acme Labs")["name"] == "Acme Labs"
    assert ask("organizations", "block", organization)["status"] == "blocked"
    assert ask("organizations", "unblock", organization)["status"] == "active"
    assert ask("organizations", "policy", organization, "--set", '{"requireSoc2": true}') == {"requireSoc2": True}
    project = ask("projects", "create", organization, "Apps")["id"]
    assert ask("projects", "set", project, "--cache", "--cache-ttl", "90")["cacheDurationSeconds"] == 90
    assert ask("projects", "set", project, "--cache-markers", "client-managed")["cacheMarkers"] == "client-managed"
    boss = "boss@example.com"
    member = ask("members", "add", organization, boss, "--role", "admin")["id"]
    assert ask("members", "set-role", member, "owner")["role"] == "owner"
    assert ask("members", "invite", organization, "new@example.com")["link"].startswith("http")
    assert (
        ask("members", "set-password", "boss@example.com", typed="a long enough one\n")["email"] == "boss@example.com"
    )
    assert ask("members", "reset-second-factor", "boss@example.com")["removed"] is False
    team = ask("teams", "create", organization, "Research")["id"]
    assert ask("teams", "add", team, member)["message"] == "Team updated."
    assert ask("teams", "show", team)["memberIds"] == [member]
    assert ask("teams", "remove", team, member)["message"] == "Team updated."
    assert ask("teams", "delete", team)["message"] == "Team deleted."
    rule = ask("rules", "add", "organization", organization, "deny_models", '{"models": ["large"]}')["id"]
    assert ask("rules", "switch", organization, rule, "off")["status"] == "inactive"
    assert ask("rules", "switch", organization, rule, "on")["status"] == "active"
    assert ask("rules", "remove", organization, rule)["message"] == "Access rule removed."
    own = ask("provider-keys", "add", organization, "sandbox", typed="own-key-of-the-tests")["providerKey"]["id"]
    assert ask("provider-keys", "limit", own, "2.5")["maxSpend"] == "2.5"
    assert ask("provider-keys", "switch", own, "off")["status"] == "inactive"
    assert ask("provider-keys", "switch", own, "on")["status"] == "active"
    assert ask("provider-keys", "reseal")["keys"] == 1
    assert ask("provider-keys", "remove", own)["message"] == "Provider key removed."
    assert ask("credits", "grant", "5", "--organization", organization)["credits"] == "5"
    assert ask("credits", "unlimited", "--organization", organization)["unlimited"] is True
    discount = ask("discounts", "set", "0.2")["id"]
    assert ask("discounts", "remove", discount)["message"] == "Discount removed."
    assert ask("rates", "set", "model", "each", "requests", "60")["amount"] == 60
    assert ask("rates", "clear", "model", "each")["message"] == "Rate limits removed."
    assert ask("rollups", "rebuild", "--from", "2026-01-01", "--to", "2026-01-02")["hours"] == 0
    assert ask("jobs", "run", "rollups")["job"] == "rollups"
    assert ask("migrate") == {"applied": []}
    assert ask("audit", "verify")["problems"] == [] and ask("check-catalogue") == {"problems": []}
    assert ask("seed")["token"] is None


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_the_token_of_a_key_is_json_beside_the_warning_on_standard_error(run, capsys) -> None:
    def ask(*words: str) -> dict:
        output = run(*words, "--json")
        return json.loads(output[: output.rindex("}") + 1])

    made = ask("keys", "create", "--description", "For a program")
    assert made["token"].startswith("llmgtwy_")
    (listed,) = [one for one in json.loads(run("keys", "list", "--json")) if one["id"] == made["id"]]
    assert listed["expiresAt"] is None
    assert ask("keys", "roll", made["id"])["token"] != made["token"]
    for word, state in (("deactivate", "inactive"), ("activate", "active"), ("revoke", "revoked")):
        changed = ask("keys", word, made["id"])
        assert (changed["id"], changed["state"]) == (made["id"], state)
    assert ask("keys", "delete", made["id"])["message"] == "API key deleted."
    hook = ask("alerts", "add", "https://ops.example.com/hook")
    assert hook["secret"] and ask("alerts", "remove", hook["id"])["message"] == "Address removed."


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_mistakes_of_the_configuration_are_json_too(run, monkeypatch) -> None:
    assert json.loads(run("config", "check", "--json")) == {"problems": []}
    monkeypatch.setenv("GATEWAY_LIMTS_MAX_KEYS", "5")
    (problem,) = json.loads(run("config", "check", "--json", status=1))["problems"]
    assert "GATEWAY_LIMTS_MAX_KEYS" in problem
    monkeypatch.delenv("GATEWAY_LIMTS_MAX_KEYS")
    monkeypatch.setenv("GATEWAY_METRICS_TOKEN_FILE", "/nowhere")
    (problem,) = json.loads(run("config", "check", "--json", status=1))["problems"]
    assert "GATEWAY_METRICS_TOKEN_FILE" in problem and "/nowhere" in problem


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_a_first_start_is_json_for_a_program(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("LLM_GROQ_API_KEY", "gsk-of-the-tests")
    first, again = (json.loads(run("serve-info", "--json")) for _ in range(2))
    assert first["token"].startswith("llmgtwy_") and first["credits_usd"] == "100" and "groq" in first["providers"]
    assert again["token"] is None and again["address"] == first["address"] and "credits_usd" not in again
    assert first["key"].startswith("key_") and again["key"] == first["key"]
    assert json.loads(run("doctor", "--json")) == {"agree": True, "differences": []}


def test_every_hint_names_the_command_as_it_is_called_here() -> None:
    assert MANAGE == "./manage" and (ROOT / "manage").exists()
    written = {
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "gateway").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"""python -m gateway\.manage|["'(`]manage [a-z]""", line) and path.name != "manage.py"
    }
    assert written == set()
