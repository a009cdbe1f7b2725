"""The status of the installation, as the operator's command reports it."""

import json
import os
import socket
import threading

import orjson
import pytest
from support.gateways import free_port
from support.usage import insert_rows, request_at, usage_row

from gateway.accounts.keys import list_keys
from gateway.accounts.organizations import list_organizations
from gateway.callers.models import ApiKey
from gateway.clock import DAY_US
from gateway.metering.models import BYOK
from gateway.metering.usage_table import raw_id
from gateway.operator.installation_commands import Installation
from gateway.store.documents import Documents
from gateway.telemetry.presence import KIND, WorkerFacts
from gateway.worker import accepted_configuration


@pytest.fixture
def installation(run):
    made = Installation()
    yield made
    made.close()


def test_status_shows_workers_providers_and_its_cooldowns(run, installation, monkeypatch) -> None:
    monkeypatch.setenv("LLM_OPENAI_API_KEY", "sk-secret-of-the-tests")
    output = run("status", status=1)
    assert "No worker is running" in output and "openai" in output and "sk-secret" not in output
    database = installation.database
    end = f"{database.moment_sql()} + 60000000"
    for epoch, node in ((1001, "north"), (1002, "north"), (1003, "south"), (1004, "west")):
        sql = f"INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (?, ?, {end}, 0)"
        database.write(lambda sql=sql, row=(epoch, node): database.execute(sql, row))
    database.write(
        lambda: database.execute(
            f"INSERT INTO leader (name, worker, epoch, expires_at) VALUES ('jobs', 1002, 1, {end})"
        )
    )
    for epoch, version, count in ((1001, "1.0", 2), (1002, "1.1", 1), (1003, "1.1", 1), (7, "0.9", 9)):
        identities = (("vertex", "metadata", 0, "refused"),) * (epoch == 1003)
        facts = WorkerFacts(version, "c" * 64, (("openai", "limited", count),), identities)
        Documents(database).put(KIND, str(epoch), orjson.dumps(facts), 60)
    run("jobs", "run", "rollups")
    found = json.loads(run("status", "--json"))
    assert found["nodes"] == {"north": 2, "south": 1, "west": 1}
    assert [worker["epoch"] for worker in found["workers"] if worker["leads"]] == [1002]
    assert [worker["version"] for worker in found["workers"]] == ["1.0", "1.1", "1.1", None]
    assert [worker["catalogue"] for worker in found["workers"]] == [*["c" * 16] * 3, None]
    token = {"provider": "vertex", "source": "metadata", "expires": "never", "failure": "refused"}
    assert found["identities"] == [{"node": "south", "worker": 1003, **token}]
    rest = {"provider": "openai", "reason": "limited"}
    assert (
        found["cooldowns"]
        == found["resting"]
        == [{"node": "north", **rest, "count": 2}, {"node": "south", **rest, "count": 1}]
    )
    assert found["version"] and found["catalogue"]
    database = found["database"]
    assert database["migration"][:4].isdigit() and (database["pending"], database["ahead"]) == ([], [])
    text = run("status")
    assert database["kind"] in ("sqlite", "postgresql") and database["address"] in text
    for name, value in (("version", found["version"]), ("migration", database["migration"])):
        assert f"\n{name} " in text and value in text
    assert f"\ncatalogue  {found['catalogue']}" in text and "metadata" in text
    assert [job["error"] for job in found["jobs"] if job["job"] == "rollups"] == [None]
    without = {provider["provider"]: provider["needs"] for provider in found["providers"] if not provider["configured"]}
    assert "openai" not in without and "ANTHROPIC_API_KEY" in without["anthropic"]
    assert "ANTHROPIC_API_KEY" in run("status", "--all")


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_status_shows_how_far_a_database_is(run, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/behind.db")
    for words in (("status",), ("keys", "list"), ("backup", str(tmp_path / "copy.db"))):
        assert "There is no database at" in run(*words, status=1)
    assert not (tmp_path / "behind.db").exists()
    (tmp_path / "behind.db").touch()
    database = json.loads(run("status", "--json", status=1))["database"]
    assert database["migration"] is None and database["pending"][0].startswith("0001")
    assert f"{len(database['pending'])} pending: run" in run("status", status=1)
    run("migrate")
    assert json.loads(run("status", "--json", status=1))["database"]["pending"] == []


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_status_goes_on_where_the_catalogue_has_mistakes(run, monkeypatch, tmp_path) -> None:
    own = tmp_path / "own" / "providers" / "north.toml"
    own.parent.mkdir(parents=True)
    monkeypatch.setenv("GATEWAY_CATALOGUE_PATH", str(tmp_path / "own"))
    before = json.loads(run("status", "--json", status=1))
    monkeypatch.setattr(accepted_configuration, "_current", [])
    accepted_configuration.begin()  # as a server keeps what it serves
    own.write_text('name = "North"\nprotocol = "opnai"\n')
    found = json.loads(run("status", "--json", status=1))
    assert "did you mean openai?" in found["mistakes"][0] and found["catalogue"] == before["catalogue"]
    assert "List them: ./manage config check" in run("status", status=1)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_status_without_the_database_asks_the_gateway_of_this_host(run, monkeypatch) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    monkeypatch.setenv("PORT", str(free_port()))
    found = json.loads(run("status", "--json", status=1))
    assert found["node"] == {"ready": None, "says": None} and found["database"]["error"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setenv("PORT", str(other.getsockname()[1]))
        threading.Thread(target=answer_without_http, args=(other,), daemon=True).start()
        output = run("status", status=1)
    assert "The database is down" in output and "No gateway answers on this host at its port." in output


@pytest.mark.parametrize("run", ["postgresql"], indirect=True)
def test_status_shows_whether_reports_read_the_replica(run, installation, monkeypatch) -> None:
    monkeypatch.setenv("GATEWAY_DATABASE_REPLICA_URL", os.environ["DATABASE_URL"])
    assert "far behind, or no worker runs; reports are read from the primary" in run("status", status=1)
    database = installation.database
    sql = "INSERT INTO leader (name, worker, epoch, expires_at) VALUES ('jobs', 1, 1, ?)"
    database.write(lambda: database.execute(sql, (database.now_us() + 60_000_000,)))
    assert json.loads(run("status", "--json", status=1))["database"]["replica"] == {"used": True, "lag_s": 0}
    assert "\nreplica    0 s behind; reports are read from it\n" in run("status", status=1)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_status_shows_where_usage_is_delivered(run, monkeypatch) -> None:
    monkeypatch.setenv("GATEWAY_ANALYTICS_CLICKHOUSE_URL", "http://writer:secret@127.0.0.1:1/statistics")
    shown = {"address": "http://127.0.0.1:1/statistics", "delivered_until": None, "behind_s": None}
    assert json.loads(run("status", "--json", status=1))["analytics"] == shown
    assert f"\nclickhouse  {shown['address']}; nothing was delivered yet\n" in run("status", status=1)


def answer_without_http(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"220 ready\r\n")


def test_spend_is_reported_by_day_project_key_and_model(run, installation) -> None:
    (key,) = list_keys(installation.database)
    (organization,) = list_organizations(installation.database)
    now_us = installation.database.now_us()
    mine = {"project": raw_id(key.project_id), "api_key": raw_id(key.id), "served": "gpt-4o-mini", "provider": "openai"}
    installation.database.write(lambda: ApiKey.update(description="=-1+cmd|'/C calc'!A0").execute())
    rows = [usage_row(now_us - n * DAY_US, cost_nusd=n * 10**9, posted_at=now_us - 1, **mine) for n in (1, 2, 3)]
    insert_rows(installation.database, *rows, usage_row(now_us, cost_nusd=7, project=bytes(15) + b"x"))
    days = json.loads(run("spend", "--json"))
    assert [day["cost_usd"].rstrip("0").rstrip(".") for day in days] == ["3", "2", "1"]
    for by, ident in (("project", key.project_id), ("key", key.id), ("model", "openai/gpt-4o-mini")):
        (line,) = json.loads(run("spend", "--by", by, "--json"))
        assert line[by] == ident and line["requests"] == 3 and float(line["cost_usd"]) == 6
    header, line = run("spend", "--by", "key", "--csv").splitlines()
    assert header.startswith("key,name,requests,") and line.startswith(f"{key.id},'=-1+cmd|'/C calc'!A0,3,")
    own = usage_row(now_us - 4 * DAY_US, cost_nusd=2 * 10**9, input=30, output=5, mode=BYOK, **mine)
    own = own._replace(posted_at=installation.database.now_us())
    equal = own._replace(request=request_at(own.at + 1), served="a-new-model")
    insert_rows(installation.database, equal, own._replace(served="a-model"))
    lines = json.loads(run("spend", "--by", "model", "--json"))
    assert [line["model"] for line in lines] == ["openai/gpt-4o-mini", "openai/a-model", "openai/a-new-model"]
    for scope in (("--project", key.project_id), ("--organization", organization.id)):
        assert json.loads(run("spend", "--by", "model", *scope, "--json")) == lines
    amounts = {name: float(lines[1][name]) for name in ("cost_usd", "credits_usd", "own_keys_usd")}
    assert amounts == {"cost_usd": 2, "credits_usd": 0, "own_keys_usd": 2}
    assert [lines[1][name] for name in ("errors", "input_tokens", "output_tokens")] == [0, 30, 5]
    for by in ("project", "key", "team", "person"):
        assert run("spend", "--by", by, "--csv").startswith(f"{by},name,requests,")
    for words in (("day",), ("model",), ("provider",), ("app",), ("session",), ("tag", "--tag", "user")):
        assert run("spend", "--csv", "--by", *words).startswith(f"{words[0]},requests,")
    assert float(json.loads(run("spend", "--forecast", "--json"))[0]["expected_usd"]) >= 0
    assert "There was no spending" in run("spend", "--from", "2020-01-01", "--to", "2020-01-02")
    assert "error: There is no project" in run("spend", "--project", "proj_none", status=1)


LISTINGS = ("keys", "organizations", "projects", "members", "teams", "discounts", "alerts", "jobs", "audit")


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_every_listing_is_json_on_demand(run) -> None:
    for name in LISTINGS:
        found = json.loads(run(name, "list", "--json"))
        assert isinstance(found, list) and all(isinstance(one, dict) for one in found), name
    organization = json.loads(run("organizations", "list", "--json"))[0]["id"]
    for words in (("rules", "list"), ("provider-keys", "list"), ("custom-providers", "list")):
        assert json.loads(run(*words, organization, "--json")) == []
    for words in (("credits", "balance"), ("credits", "history"), ("limits", "show"), ("rates", "show")):
        assert isinstance(json.loads(run(*words, "--json")), list)
    assert isinstance(json.loads(run("rollups", "status", "--json")), list)
    period = ("--from", "2026-01-01", "--to", "2026-02-01")
    assert json.loads(run("re-rate", *period, "--json")) == []
