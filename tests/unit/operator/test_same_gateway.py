"""`doctor` and `re-rate` work on the gateway's own catalogue and database, or say why they do not."""

import os
from pathlib import Path

import click
import orjson
import pytest

from gateway.errors import Conflict
from gateway.operator import doctor, running
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.running import RunningGateway
from gateway.store.documents import Documents
from gateway.telemetry.presence import KIND, WorkerFacts

PERIOD = ("--from", "2026-01-01", "--to", "2026-02-01")


def live(installation: Installation, epoch: int, catalogue: str) -> None:
    database = installation.database
    end = database.now_us() + 10**9
    sql = "INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (?, 'north', ?, 0)"
    database.write(lambda: database.execute(sql, (epoch, end)))
    Documents(database).put(KIND, str(epoch), orjson.dumps(WorkerFacts("1.0", catalogue)), 60)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_another_catalogue_than_the_workers_is_refused_unless_forced(run, monkeypatch, tmp_path: Path) -> None:
    with opened() as installation:
        live(installation, 1001, installation.catalogue.version)
    assert run("doctor") == "The books agree." and "no usage" in run("re-rate", *PERIOD)
    (tmp_path / "other" / "models").mkdir(parents=True)
    (tmp_path / "other" / "models" / "x.toml").write_text('[[models]]\nid = "x"\nname = "X"\nfamily = "x"\n')
    monkeypatch.setenv("GATEWAY_CATALOGUE_PATH", str(tmp_path / "other"))
    for words in (("doctor",), ("re-rate", *PERIOD)):
        output = run(*words, status=1)
        assert "GATEWAY_CATALOGUE_PATH" in output and "--force" in output and output.count("\n") == 0
    assert run("doctor", "--force") == "The books agree." and "no usage" in run("re-rate", *PERIOD, "--force")


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_only_other_catalogues_than_that_of_the_command_are_named(run) -> None:
    with opened() as installation:
        own = installation.catalogue.version
        live(installation, 1001, own)
        live(installation, 1002, "f" * 64)
    assert f"serves the catalogue {'f' * 16}, but this command reads {own[:16]}." in run("doctor", status=1)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
def test_a_database_that_no_gateway_serves_from_is_refused_while_one_runs_on_another(run, monkeypatch) -> None:
    """As `./manage` looks for the gateway that runs; a command that does not look examines what it was given."""
    theirs = {**os.environ, "DATABASE_URL": "", "GATEWAY_DATA_DIR": "/elsewhere"}
    monkeypatch.setattr(running, "find_gateways", lambda: iter([RunningGateway(7, theirs)]))
    with click.Context(click.Command("doctor"), obj="find"), opened() as installation:
        with pytest.raises(Conflict, match=r"/elsewhere/gateway.db.*process 7.*--force"):
            doctor.check_same(installation, force=False)
        doctor.check_same(installation, force=True)
        theirs["DATABASE_URL"] = os.environ["DATABASE_URL"]
        doctor.check_same(installation, force=False)
    assert "The books agree." in run("doctor")
