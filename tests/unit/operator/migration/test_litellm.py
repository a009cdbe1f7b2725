"""A configuration of LiteLLM with exports of its management API becomes one of the gateway."""

import csv
import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.keys import list_keys
from gateway.accounts.members import list_members
from gateway.accounts.projects import list_projects
from gateway.accounts.rules import list_rules
from gateway.accounts.teams import list_teams
from gateway.clock import Clock
from gateway.limits.budgets import Budgets
from gateway.operator.installation_commands import Installation
from gateway.operator.migration.litellm_command import limits_of, plan_accounts
from gateway.operator.migration.litellm_models import MigrationReport

CONFIG = """
model_list:
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY, rpm: 480}
  - model_name: fast
    litellm_params: {model: groq/llama-3.3-70b-versatile, api_key: os.environ/GROQ_API_KEY}
  - model_name: claude
    litellm_params: {model: anthropic/claude-haiku-4-5, api_key: sk-ant-literal}
  - model_name: claude
    litellm_params: {model: "bedrock/converse/eu.anthropic.claude-haiku-4-5-20251001-v1:0", aws_region_name: eu-west-1}
  - model_name: Our House
    litellm_params:
      model: hosted_vllm/our/model
      api_base: http://vllm.internal:8000/v1
      input_cost_per_token: 0.0000015
      output_cost_per_token: 2.0e-6
    model_info: {max_input_tokens: 32768, max_output_tokens: 4096, supports_vision: true}
  - model_name: vectors
    litellm_params: {model: openai/bge, api_base: "http://vllm.internal:8000/v1", api_key: "sk-engine"}
    model_info: {mode: embedding}
  - model_name: "anthropic/*"
    litellm_params: {model: "anthropic/*"}
  - model_name: elsewhere
    litellm_params: {model: nowhere/foo}
  - {model_name: broken}
litellm_settings: {drop_params: true, success_callback: [langfuse], unheard_of: 1}
router_settings: {routing_strategy: latency-based-routing, model_group_alias: {gpt-best: gpt-4o, lost: missing}}
general_settings: {master_key: sk-1234}
environment_variables: {FOO: bar}
"""
TEAMS = [
    {
        "team_id": "t1",
        "team_alias": "Research",
        "max_budget": 100.0,
        "budget_duration": "30d",
        "models": ["gpt-4o", "claude"],
        "rpm_limit": 600,
        "spend": 12.5,
        "members_with_roles": [{"user_id": "u1", "role": "admin"}],
    },
    {"team_id": "t2", "team_alias": "Operations", "budget_id": "b1", "models": ["all-proxy-models"]},
]
BUDGETS = [{"budget_id": "b1", "max_budget": 0.5, "budget_duration": "30m"}]
KEYS = {
    "keys": [
        {
            "token": "88dc28d0f030c55e",
            "key_name": "sk-...K4sw",
            "key_alias": "ci",
            "team_id": "t1",
            "max_budget": 5,
            "budget_duration": "1d",
            "models": ["all-team-models"],
            "tpm_limit": 9000,
            "metadata": {"tags": ["x"]},
        },
        {"token": "b", "key_name": "sk-...abcd", "key_alias": "old", "expires": "2020-01-01T00:00:00Z"},
        {"token": "c", "key_name": "sk-...efgh", "key_alias": "solo", "max_budget": 20, "models": ["fast", "new-one"]},
        {"token": "d", "key_name": "sk-...ijkl", "models": ["anthropic/*"], "blocked": True},
    ],
    "total_count": 4,
}
Run = Callable[..., str]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    for name, content in (("keys", KEYS), ("teams", TEAMS), ("budgets", BUDGETS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def arguments(files: Path, *more: str) -> list[str]:
    exports = [word for name in ("keys", "teams", "budgets") for word in (f"--{name}", str(files / f"{name}.json"))]
    return ["migrate", "litellm", str(files / "config.yaml"), *exports, "--output", str(files / "out"), *more]


def test_the_written_file_is_one_that_the_gateway_serves(run: Run, files: Path, monkeypatch: Any) -> None:
    told = run("migrate", "litellm", str(files / "config.yaml"), "--output", str(files / "out"))
    written = files / "out" / "gateway.toml"
    table = tomllib.loads(written.read_text())
    assert table["aliases"]["claude"] == "claude-haiku-4-5" and table["aliases"]["gpt-best"] == "gpt-4o"
    assert table["aliases"]["Our House"] == "our-house" and "gpt-4o" not in table["aliases"]
    engine = table["providers"]["vllm.internal-8000"]
    (house,) = engine["mappings"]
    assert house["external_id"] == "our/model" and house["prices"] == {"prompt": "0.0000015", "completion": "0.000002"}
    assert (house["context_length"], house["max_output"], house["vision"]) == (32768, 4096, True)
    (vectors,) = table["providers"]["vllm.internal-8000-2"]["mappings"]
    assert vectors["operations"] == ["embeddings"]
    for name in ("OPENAI_API_KEY", "GROQ_API_KEY"):
        monkeypatch.setenv(name, "sk-of-the-test")
    monkeypatch.setenv("GATEWAY_CONFIG", str(written))
    checked = run("config", "check")
    assert "mistake" not in checked and "not set" not in checked
    for kept in ("sk-ant-literal", "sk-engine", "sk-1234"):
        assert kept not in told and kept not in written.read_text()
    secret = files / "out" / "litellm-keys" / "anthropic"
    assert secret.read_text() == "sk-ant-literal" and stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_everything_that_is_not_carried_over_is_told(run: Run, files: Path) -> None:
    report = json.loads(run(*arguments(files, "--json")))
    absent, todo, replaced = ("\n".join(report[name]) for name in ("absent", "todo", "replaced"))
    for name in (
        "nowhere/foo",
        "model_list entry 9",
        "unheard_of",
        "environment_variables",
        "lost",
        "key old",
        "ci: metadata",
    ):
        assert name in absent, name
    for name in ("litellm_params.rpm", "aws_region_name", "vectors: it has no price", "only hashes", "1 member"):
        assert name in todo, name
    for name in ("success_callback", "routing_strategy", "master_key", "anthropic/<model>", "30m is 1h", "spend"):
        assert name in replaced, name
    assert "key ci: metadata" in absent
    assert report["keyIds"] == [] and "model claude, as an alias of claude-haiku-4-5" in report["taken"]


def test_without_apply_nothing_is_made(run: Run, files: Path) -> None:
    run("seed")
    assert "Nothing was changed" in run(*arguments(files))
    assert json.loads(run("teams", "list", "--json")) == [] and not (files / "out" / "keys.csv").exists()


def test_teams_and_keys_are_made_with_their_limits(run: Run, files: Path) -> None:
    run("seed")
    run(*arguments(files, "--apply"))
    path = files / "out" / "keys.csv"
    assert b"\r" not in path.read_bytes(), "a shell reads it line by line"
    rows = list(csv.DictReader(path.open()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [(row["name"], row["former key"]) for row in rows] == [
        ("ci", "sk-...K4sw"),
        ("solo", "sk-...efgh"),
        ("sk-...ijkl", "sk-...ijkl"),
    ]
    assert all(row["key"].startswith("llmgtwy_") for row in rows)
    installation = Installation()
    database = installation.database
    keys = {key.description: key for key in list_keys(database)}
    projects = {project.id: project.name for project in list_projects(database)}
    teams = {team.name: team for team in list_teams(database)}
    assert projects[keys["ci"].project_id] == "Research" and projects[keys["solo"].project_id] == "LiteLLM"
    owners = {member.id: member for member in list_members(database)}
    assert (
        teams["Research"].member_ids == [keys["ci"].member_id] or keys["ci"].member_id in teams["Research"].member_ids
    )
    assert owners[keys["solo"].member_id].role == "owner"
    subjects = [teams["Research"].id, teams["Operations"].id, keys["ci"].id, keys["solo"].id]
    budgets = Budgets(database, installation.control).statuses(subjects)
    limits = [budgets[subject].limits for subject in subjects]
    shown = [(limit.total_nusd, limit.period_nusd, str(limit.period)) for limit in limits]
    assert shown == [
        (None, 100 * 10**9, "30d"),
        (None, 5 * 10**8, "1h"),
        (None, 5 * 10**9, "1d"),
        (20 * 10**9, None, "None"),
    ]
    rules = {rule.scope_id: (rule.type, rule.value) for rule in list_rules(database, keys["ci"].organization_id)}
    assert rules[teams["Research"].id] == ("allow_models", {"models": ["gpt-4o", "claude-haiku-4-5"]})
    assert rules[keys["solo"].id] == ("allow_models", {"models": ["llama-3.3-70b-instruct", "new-one"]})
    assert rules[keys["sk-...ijkl"].id] == ("allow_providers", {"providers": ["anthropic"]})
    assert keys["ci"].id not in rules and teams["Operations"].id not in rules
    assert keys["sk-...ijkl"].state == "inactive"
    installation.close()
    # Once more: what exists is left as it is, and keys are never written over.
    assert "exists already" in run(*arguments(files, "--apply"), status=1)
    path.unlink()
    assert json.loads(run(*arguments(files, "--apply", "--json")))["keyIds"] == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("model_list: [", "cannot be read"),
        ("- a\n- b", "is no configuration of LiteLLM"),
        ("model_list: {a: 1}", "model_list is not a list"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(run: Run, tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    assert told in run("migrate", "litellm", str(path), "--output", str(tmp_path / "out"), status=1)
    assert not (tmp_path / "out").exists()


def test_an_export_of_hashes_alone_is_refused(run: Run, files: Path) -> None:
    (files / "keys.json").write_text('{"keys": ["88dc28d0f030c55e"]}')
    assert "return_full_object=true" in run(*arguments(files), status=1)


@pytest.mark.parametrize(
    ("row", "limits"),
    [
        ({"max_budget": 0.1}, "100000000"),
        ({"max_budget": "0.3", "budget_duration": "1mo"}, "300000000 1mo"),
        ({"max_budget": 1, "budget_duration": "3600s"}, "1000000000 1h"),
        ({"max_budget": 1, "budget_duration": "soon"}, "1000000000"),
        ({"max_budget": 1, "budget_duration": "9999d"}, "1000000000"),
        ({"max_budget": "many"}, ""),
        ({"max_budget": None}, ""),
    ],
)
def test_budgets_are_exact(row: dict[str, Any], limits: str) -> None:
    read = limits_of(row, MigrationReport(), "key x")
    shown = [str(one) for one in (read.total_nusd, read.period_nusd, read.period) if one is not None]
    assert " ".join(shown) == limits


def test_a_key_of_an_unknown_team_is_told() -> None:
    report = MigrationReport()
    plan_accounts([{"key_alias": "a", "team_id": "gone"}], [], [], report, Clock().now_us())
    assert "key a: its team gone is not in the export of teams" in report.todo
