"""The operator's commands on credits, limits, rates and the books."""

import json
import os

import pytest
from support.usage import insert_rows, usage_row

from gateway.accounts.keys import list_keys
from gateway.clock import DAY_US, to_iso
from gateway.metering.usage_table import raw_id
from gateway.operator.installation_commands import Installation


def ident(run, *command: str) -> str:
    """The id in the first line of a list."""
    return run(*command, "list").splitlines()[1].split()[0]


def cells(shown: str, line: int = 1) -> list[str]:
    return shown.splitlines()[line].split()


def test_credits_are_granted_adjusted_and_shown(run) -> None:
    before = float(cells(run("credits", "balance"))[1])
    assert cells(run("credits", "grant", "12.50", "--note", "invoice 7"))[1] == f"{before + 12.5:g}"
    assert cells(run("credits", "adjust", "--note", "too much", "--", "-2.5"))[1] == f"{before + 10:g}"
    assert "Missing option '--note'" in run("credits", "adjust", "1", status=1)
    output = run("credits", "history")
    assert cells(output, 1)[1:3] == ["adjustment", "-2.5"] and cells(output, 2)[1:3] == ["grant", "12.5"]
    assert "credits.post" in run("audit", "list") and run("doctor") == "The books agree."


def test_a_reference_is_posted_once(run) -> None:
    run("credits", "grant", "5", "--reference", "order-1")
    before = cells(run("credits", "balance"))[1]
    assert cells(run("credits", "grant", "5", "--reference", "order-1"))[-1] == "no"
    assert cells(run("credits", "balance"))[1] == before


@pytest.mark.parametrize("amount", ["0", "-1", "ten", "0.0000000001", "nan"])
def test_an_improper_grant_is_refused(run, amount: str) -> None:
    assert run("credits", "grant", "--", amount, status=1).startswith("error: ")


def test_one_of_several_organizations_must_be_named(run) -> None:
    output = run("organizations", "create", "Other")
    assert "several organizations" in run("credits", "grant", "1", status=1)
    assert "several organizations" in run("credits", "history", status=1)
    assert cells(run("credits", "grant", "1", "--organization", output))[:2] == [output, "1"]
    assert output in run("credits", "balance") and len(run("credits", "balance").splitlines()) == 3
    assert cells(run("credits", "history", "--organization", output))[1:3] == ["grant", "1"]
    assert "error: " in run("credits", "balance", "--organization", "org_" + "0" * 32, status=1)


@pytest.mark.parametrize("kind", ["keys", "members"])
def test_limits_are_set_changed_and_cleared(run, kind: str) -> None:
    subject = ident(run, kind)
    assert cells(run("limits", "set", subject, "--total", "10"))[1:4] == ["10", "0", "-"]
    output = run("limits", "set", subject, "--amount", "2.5", "--period", "1d")
    assert cells(output)[1:6] == ["10", "0", "2.5", "1", "day"]
    assert cells(run("limits", "set", subject, "--amount", "none", "--period", "none"))[1:4] == ["10", "0", "-"]
    assert cells(run("limits", "show"))[0] == subject
    run("limits", "clear", subject)
    assert run("limits", "show") == "There are no limits."
    assert "update_limit" in run("audit", "list")


@pytest.mark.parametrize(
    "options", [[], ["--amount", "2"], ["--period", "1d"], ["--total", "-1"], ["--amount", "1", "--period", "5y"]]
)
def test_improper_limits_are_refused(run, options: list[str]) -> None:
    assert run("limits", "set", ident(run, "keys"), *options, status=1).startswith("error: ")


def test_limits_of_unknown_subjects_are_refused(run) -> None:
    for nobody in ("key_" + "0" * 32, "member_" + "0" * 32):
        assert "error: " in run("limits", "set", nobody, "--total", "1", status=1)
    assert "is not the id of a key (key_…), member" in run("limits", "set", "CI", "--total", "1", status=1)


def test_rates_are_set_shown_and_cleared(run) -> None:
    key = ident(run, "keys")
    run("rates", "set", "key", key, "requests", "60")
    run("rates", "set", "key", key, "concurrency", "3")
    run("rates", "set", "model", "each", "tokens", "100000")
    output = run("rates", "show")
    assert len(output.splitlines()) == 4 and "each" in output and "tokens" in output
    run("rates", "clear", "key", key, "requests")
    assert len(run("rates", "show").splitlines()) == 3
    run("rates", "clear", "key", key)
    run("rates", "clear", "model", "each")
    assert run("rates", "show") == "There are no rates."


def test_rates_of_unknown_subjects_are_refused_and_unknown_models_reported(run) -> None:
    for scope, subject in (("organization", "org_x"), ("project", "proj_x"), ("key", "key_x"), ("operation", "chatt")):
        assert run("rates", "set", scope, subject, "requests", "1", status=1).startswith("error: There is no "), scope
    assert "did you mean gpt-4o-mini" in run("rates", "set", "model", "gpt-4o-mimi", "requests", "1")
    run("rates", "set", "operation", "embeddings", "requests", "1")


def test_a_key_of_an_unknown_provider_is_refused(run) -> None:
    organization = ident(run, "organizations")
    output = run("provider-keys", "add", organization, "opnai", status=1, typed="sk-of-the-tests\n")
    assert output == "error: There is no provider opnai; did you mean openai?"


def test_an_improper_rate_is_refused(run) -> None:
    assert "error: " in run("rates", "set", "planet", "x", "requests", "1", status=1)
    assert "error: " in run("rates", "set", "key", "x", "requests", "-1", status=1)


def test_the_bound_of_a_provider_key_is_set_shown_and_removed(run) -> None:
    organization = ident(run, "organizations")
    key = run("provider-keys", "add", organization, "sandbox", "--max-spend", "2.5", typed="own-key").splitlines()[0]
    assert cells(run("provider-keys", "list", organization))[-2:] == ["2.5", "0"]
    assert cells(run("provider-keys", "limit", key, "7"))[-2:] == ["7", "0"]
    assert cells(run("provider-keys", "list", organization))[-2:] == ["7", "0"]
    assert cells(run("provider-keys", "limit", key, "none"))[-2:] == ["-", "0"]
    assert "error: " in run("provider-keys", "limit", key, "much", status=1)
    assert run("doctor") == "The books agree."


def test_discounts_are_set_listed_and_removed(run) -> None:
    first = run("discounts", "set", "0.2", "--provider", "sandbox", "--from", "2026-01-01", "--to", "2026-02-01T12:00")
    assert first.startswith("disc_")
    everyone = run("discounts", "set", "0.05")
    output = run("discounts", "list")
    assert cells(output) == [everyone, "*", "*", "*", "0.05", "-", "-"]
    assert cells(output, 2)[2:] == ["sandbox", "*", "0.2", "2026-01-01T00:00:00.000Z", "2026-02-01T12:00:00.000Z"]
    assert run("discounts", "set", "0.3", "--provider", "sandbox") == first
    for one in (first, everyone):
        assert run("discounts", "remove", one) == "Discount removed."
    assert run("discounts", "list") == "There are no discounts."
    assert "discount.remove" in run("audit", "list")


@pytest.mark.parametrize("fraction", ["0", "1", "20", "-0.1", "a fifth", "nan", "0.0000001"])
def test_an_improper_discount_is_refused(run, fraction: str) -> None:
    assert "decimal fraction" in run("discounts", "set", "--", fraction, status=1)


def test_a_discount_of_nothing_known_is_refused(run) -> None:
    for place in (("--provider", "nobody"), ("--model", "none"), ("--organization", "org_" + "0" * 32)):
        assert "There is no" in run("discounts", "set", "0.1", *place, status=1)
    assert "There is no discount" in run("discounts", "remove", "disc_" + "0" * 32, status=1)


def test_doctor_shows_a_difference_with_status_1(run, open_store) -> None:
    store = open_store(os.environ["DATABASE_URL"])
    sql = "UPDATE budget SET limit_nusd = limit_nusd + 1 WHERE kind = 'credits'"
    store.write(lambda: store.execute(sql))
    output = run("doctor", status=1)
    assert "credit balance" in output and "1 difference." in output


def test_a_period_without_usage_has_nothing_to_price_again(run) -> None:
    output = run("re-rate", "--from", "2026-01-01", "--to", "2026-02-01", "--post")
    assert "no usage" in output and "There was nothing to post." in output
    assert "later" in run("re-rate", "--from", "2026-02-01", "--to", "2026-02-01", status=1)
    assert "error: " in run("re-rate", "--from", "yesterday", "--to", "2026-02-01", status=1)


def test_usage_is_priced_again_and_its_charges_are_exported(run) -> None:
    installation = Installation()
    database = installation.database
    (key,) = list_keys(database)
    owner = {"project": raw_id(key.project_id), "api_key": raw_id(key.id)}
    now_us = database.now_us()
    used = {"served": "gpt-4o-mini", "provider": "openai", "input": 1000, "output": 10, "cost_nusd": 7}
    insert_rows(database, usage_row(now_us - DAY_US, posted_at=now_us - 1, **owner, **used))
    installation.close()
    period = ("--from", to_iso(now_us - 2 * DAY_US), "--to", to_iso(now_us))
    assert "1 row was not priced again: " in run("re-rate", *period, "--prices", "then")
    (line,) = json.loads(run("re-rate", *period, "--prices", "now", "--json"))
    assert (line["served_by"], line["paid_by"], line["rows"]) == ("openai/gpt-4o-mini", "credits", 1)
    assert [float(line[name]) for name in ("billed", "priced_again", "difference")] == [7e-9, 0.000156, 0.000155993]
    assert "BilledCost" in run("focus", to_iso(now_us)[:7]).splitlines()[0]


def test_a_team_is_limited_renamed_and_deleted(run) -> None:
    organization, member = ident(run, "organizations"), ident(run, "members")
    team = run("teams", "create", organization, "Research")
    run("teams", "add", team, member)
    assert cells(run("limits", "set", team, "--total", "10"))[:2] == [team, "10"]
    assert member in run("teams", "show", team) and cells(run("teams", "list"))[2:] == [member, "10", "Research"]
    run("teams", "rename", team, "Science")
    assert team in run("limits", "show") and "team.update_limit" in run("audit", "list")
    run("teams", "delete", team)
    assert run("teams", "list") == "There are no teams." and run("doctor") == "The books agree."
    assert "error: " in run("limits", "set", team, "--total", "1", status=1)


def test_caps_on_active_keys_are_set_and_refuse_one_more(run) -> None:
    organization = ident(run, "organizations")
    assert cells(run("organizations", "key-caps", organization)) == ["1", "-", "-"]
    assert cells(run("organizations", "key-caps", organization, "--max", "2", "--per-member", "1"))[1:] == ["2", "1"]
    assert "may have 1" in run("keys", "create", "--description", "more", status=1)
    assert cells(run("organizations", "key-caps", organization, "--per-member", "none"))[1:] == ["2", "-"]
    assert cells(run("organizations", "key-caps", organization, "--max", "default"))[1:] == ["-", "-"]
    caps = json.loads(run("organizations", "key-caps", organization, "--max", "2", "--json"))
    assert caps["own"] == {"maxKeys": 2, "maxKeysPerMember": 0}
    run("keys", "create", "--description", "more")
    assert "may have 2" in run("keys", "create", "--description", "more", status=1)
    assert "error: " in run("organizations", "key-caps", organization, "--max", "few", status=1)


def test_the_doctor_shows_when_a_backup_holds_data_and_key(run, monkeypatch, tmp_path) -> None:
    """Created keys start in the data folder; after a move to a configured file, all works and the doctor is silent."""
    if os.environ["DATABASE_URL"].startswith("postgresql"):
        assert "backup" not in run("doctor")
        return
    data = tmp_path / "own"
    for name in ("GATEWAY_ENCRYPTION_KEY", "GATEWAY_API_KEY_HASH_SECRET"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", "")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(data))
    run("migrate")
    run("seed")
    output = run("doctor")
    assert "contains both" in output and "The books agree." in output
    key, elsewhere = data / "gateway_encryption_key", tmp_path / "elsewhere"
    elsewhere.write_text(key.read_text())
    monkeypatch.setenv("GATEWAY_ENCRYPTION_KEY_FILE", str(elsewhere))
    key.unlink()
    assert run("doctor") == "The books agree."
    assert run("keys", "list")


def test_an_organization_may_spend_without_credits_and_no_longer(run) -> None:
    assert cells(run("credits", "unlimited"))[-1] == "yes"
    assert cells(run("credits", "balance"))[-1] == "yes" and run("doctor") == "The books agree."
    assert cells(run("credits", "grant", "3"))[-2:] == ["yes", "yes"]
    assert cells(run("credits", "unlimited", "--off"))[-1] == "no" and run("doctor") == "The books agree."
    assert "credits.unlimited" in run("audit", "list")
