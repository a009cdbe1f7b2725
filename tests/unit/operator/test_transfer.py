"""An installation moves from SQLite to PostgreSQL with every row and the same totals."""

import json
from functools import partial

import pytest
from support.usage import insert_rows, usage_row

from gateway.accounts.keys import list_keys
from gateway.metering.usage_table import raw_id
from gateway.operator.installation_commands import Installation

pytestmark = [pytest.mark.parametrize("run", ["sqlite"], indirect=True), pytest.mark.postgresql]


def test_everything_is_on_postgresql_with_the_same_totals(run, postgresql_url, monkeypatch) -> None:
    run("credits", "grant", "12.5")
    run("keys", "create", "--description", "Mine")
    run("teams", "create", json.loads(run("organizations", "list", "--json"))[0]["id"], "Builders")
    installation = Installation()
    (key, _) = list_keys(installation.database)
    now_us, owner = installation.database.now_us(), raw_id(key.project_id)
    rows = [usage_row(now_us - n * 10**6, posted_at=now_us - 1, project=owner, flags=n % 2) for n in range(1, 1202)]
    insert_rows(installation.database, *rows)
    installation.close()
    shown = {name: run(name, "list", "--json") for name in ("keys", "projects", "teams", "members", "audit")}
    spent = run("spend", "--by", "project", "--csv")
    moved = json.loads(run("transfer", postgresql_url, "--json"))
    assert moved["usage"] == 1201 and moved["rows"] > 1201 and moved["tables"] > 20
    assert float(moved["spent_usd"]) == 0 and float(moved["credited_usd"]) == 112.5
    assert "is not empty" in run("transfer", postgresql_url, status=1)
    monkeypatch.setenv("DATABASE_URL", postgresql_url)
    assert {name: run(name, "list", "--json") for name in shown} == shown
    assert run("spend", "--by", "project", "--csv") == spent
    assert run("doctor").endswith("The books agree.") and run("audit", "verify").splitlines()[1].startswith("yes")
    assert "This command is for SQLite" in run("backup", "x.db", status=1)


def test_workers_and_schema_steps_stay_with_their_database(run, postgresql_url, monkeypatch) -> None:
    source = Installation()
    for statement in (
        "INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (7, 'old', 0, 0)",
        "INSERT INTO leader (name, worker, epoch, expires_at) VALUES ('old', 7, 1, 0)",
        "INSERT INTO migration (name, checksum, state) VALUES ('9999_newer', '', 'applied')",
    ):
        source.database.write(partial(source.database.execute, statement))
    source.close()
    run("transfer", postgresql_url)
    monkeypatch.setenv("DATABASE_URL", postgresql_url)
    target = Installation()
    for rows in ("worker WHERE node = 'old'", "leader WHERE name = 'old'", "migration WHERE name = '9999_newer'"):
        read = partial(target.database.execute, f"SELECT count(*) FROM {rows}")
        assert target.database.read(read).fetchone()[0] == 0
    target.close()


def test_books_that_differ_are_not_moved(run, postgresql_url) -> None:
    source = Installation()
    sql = "UPDATE budget SET limit_nusd = limit_nusd + 1 WHERE kind = 'credits'"
    source.database.write(partial(source.database.execute, sql))
    source.close()
    output = run("transfer", postgresql_url, status=1)
    assert "The ledger is not consistent. Correct that first:" in output and "credit balance" in output


def test_secrets_must_be_named_first(run, postgresql_url, monkeypatch) -> None:
    assert "postgresql://" in run("transfer", "sqlite:///other.db", status=1)
    monkeypatch.delenv("GATEWAY_ENCRYPTION_KEY")
    assert "GATEWAY_ENCRYPTION_KEY_FILE" in run("transfer", postgresql_url, status=1)
