"""The operator's commands on provider keys of organizations."""

import json

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz-1234"


def test_adding_a_provider_key_names_the_commands_that_switch_projects_to_it(run) -> None:
    [organization] = json.loads(run("organizations", "list", "--json"))
    [project] = json.loads(run("projects", "list", "--json"))
    add = ("provider-keys", "add", organization["id"], "openai", "--projects", "unchanged")
    lines = run(*add, typed=SECRET).splitlines()
    assert lines[0].startswith("pkey_") and "sk-proj-abcd…1234" in run("provider-keys", "list", organization["id"])
    assert "1 project spends credits and does not use it" in lines[1]
    command = lines[2].split()[1:]
    assert command == ["projects", "set", project["id"], "--mode", "hybrid"]
    run(*command)
    answer = run("provider-keys", "add", organization["id"], "openai", "--json", typed=SECRET)
    added = json.loads(answer)
    assert ([one["id"] for one in added["usedBy"]], added["unusedBy"]) == ([project["id"]], [])


def test_all_projects_use_a_provider_key_that_an_operator_adds(run) -> None:
    [organization] = json.loads(run("organizations", "list", "--json"))
    lines = run("provider-keys", "add", organization["id"], "openai", typed=SECRET).splitlines()
    assert lines[1].startswith("Every active project of the organization uses it.") and len(lines) == 2
    [project] = json.loads(run("projects", "list", "--json"))
    assert project["mode"] == "hybrid"
