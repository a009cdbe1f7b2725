"""A backup is the database as of one moment, without secrets; only a proven one takes its place."""

import json
import re
import sqlite3
from pathlib import Path

import pytest

from gateway.control.version import Control
from gateway.files.file_rows import FileRow, FileRows
from gateway.operator import backup
from gateway.operator.installation_commands import Installation, opened

pytestmark = pytest.mark.parametrize("run", ["sqlite"], indirect=True)


def test_a_backup_is_restored_and_the_previous_database_is_kept(run, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    output = run("backup", str(file))
    assert "GATEWAY_ENCRYPTION_KEY" in output and "encryption-key-of-tests" not in output
    assert "GATEWAY_API_KEY_HASH_SECRET" in output
    assert file.stat().st_mode & 0o777 == 0o600
    second = json.loads(run("backup", str(tmp_path / "second.db"), "--json"))
    assert Path(second["file"]).stat().st_size == second["bytes"] and len(second["secrets"]) == 2
    assert "hash-secret-of-the-tests" not in file.read_bytes().decode("latin-1")
    assert "already exists" in run("backup", str(file), status=1)
    run("keys", "create", "--description", "Later")
    assert "Later" in run("keys", "list")
    proof = json.loads(run("restore", str(file), "--verify", "--json"))
    assert proof == {"organizations": 1, "usage": 0, "files": 0, "restored": False, "kept": None, "revived": {}}
    assert "Later" in run("keys", "list")
    before = epoch()
    kept = json.loads(run("restore", str(file), "--json"))["kept"]
    assert "Later" not in run("keys", "list") and epoch() > before
    assert run("doctor").endswith("The books agree.")
    with sqlite3.connect(kept) as connection:
        assert connection.execute("SELECT count(*) FROM api_key").fetchone() == (2,)


def test_backup_restore_and_doctor_say_where_the_contents_of_files_are(run, tmp_path: Path) -> None:
    assert "files" not in run("backup", str(tmp_path / "before.db"))
    with opened() as one:
        owner = one.database.query_rows("SELECT organization_id, id FROM project", ())[0]
        file = FileRow(f"file_{'a' * 32}", *owner, "k", "uploaded", "", "text/plain", "batch", 1500, 1, None, "c" * 32)
        FileRows(one.database).insert(file)
        folder = one.settings.files_dir.absolute()
    output = run("backup", str(tmp_path / "backup.db"))
    assert f"Not included, back them up separately: 1 file (1,500 bytes) in the folder {folder}." in output
    assert f"of 1 file, which is not part of it, in the folder {folder}." in run(
        "restore", str(tmp_path / "backup.db"), "--verify"
    )
    assert f"The content of {file.id} cannot be read" in run("doctor", status=1)


def test_a_restore_names_what_was_revoked_since_the_backup(run, tmp_path: Path) -> None:
    made = [run("keys", "create", "--description", name) for name in ("Stays", "Ends", "Rolled")]
    stays, ends, rolled = (re.search(r"key_\w+", shown)[0] for shown in made)
    organization = json.loads(run("organizations", "list", "--json"))[0]["id"]
    left = run("members", "add", organization, "left@example.com")
    run("members", "set-password", "owner@localhost", typed="correct horse battery\n")
    own = run("provider-keys", "add", organization, "groq", typed="gsk_of_the_tests\n").splitlines()[0]
    file = tmp_path / "backup.db"
    run("backup", str(file))
    run("keys", "delete", ends)
    run("keys", "roll", rolled)
    run("members", "deactivate", left)
    run("members", "set-password", "owner@localhost", typed="another password\n")
    run("provider-keys", "remove", own)
    assert json.loads(run("restore", str(file), "--verify", "--json"))["revived"] == {
        "keys": sorted([ends, rolled]),
        "members": [left],
        "users": ["owner@localhost"],
        "provider_keys": [own],
    }
    output = run("restore", str(file))
    assert f"now valid again: keys {', '.join(sorted([ends, rolled]))}." in output and stays not in output


def test_invalid_backups_are_refused_and_change_nothing(run, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "text.db").write_text("no database" * 100)
    assert "is not a readable database" in run("restore", str(tmp_path / "text.db"), status=1)
    sqlite3.connect(tmp_path / "empty.db").execute("CREATE TABLE other (x)").connection.close()
    assert "not a database of the gateway" in run("restore", str(tmp_path / "empty.db"), status=1)
    file = tmp_path / "backup.db"
    run("backup", str(file))
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE budget SET limit_nusd = limit_nusd + 5, settled_nusd = settled_nusd + 5")
    assert "books of that backup differ" in (output := run("restore", str(file), "--verify", status=1))
    assert "ledger 100, credit balance 100.000000005" in output
    (fine := tmp_path / "fine.db").unlink(missing_ok=True)
    run("backup", str(fine))
    monkeypatch.setenv("GATEWAY_ENCRYPTION_KEY", "another-encryption-key")
    assert "GATEWAY_ENCRYPTION_KEY is not the secret" in run("restore", str(fine), "--verify", status=1)
    assert not list(tmp_path.glob("**/.*restore*"))


def test_the_files_beside_the_previous_database_move_with_it(run, tmp_path: Path) -> None:
    target = tmp_path / "served.db"
    draft = tmp_path / "draft.db"
    sqlite3.connect(draft).close()
    for suffix in ("", *backup.SQLITE_SUFFIXES):
        Path(f"{target}{suffix}").write_text(f"old{suffix}")
    kept = backup._replace(target, draft)
    names = [path.name for path in tmp_path.glob("served.db*")]
    assert [name for name in names if not name.startswith(Path(kept).name)] == [target.name]
    assert Path(f"{kept}-wal").read_text() == "old-wal"


def test_a_database_that_serves_is_not_replaced(run, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    run("backup", str(file))
    installation = Installation()
    database = installation.database
    sql = f"INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (9, 'n', {database.now_us() + 10**8}, 0)"
    database.write(lambda: database.execute(sql))
    assert "Stop the gateway first" in run("restore", str(file), status=1)
    assert "is valid" in run("restore", str(file), "--verify")
    installation.close()


def epoch() -> int:
    installation = Installation()
    try:
        database = installation.database
        return database.read(lambda: database.execute("SELECT epoch FROM control").fetchone()[0])
    finally:
        installation.close()


@pytest.mark.parametrize("ends", [False, True])
def test_a_database_that_was_served_from_while_the_backup_was_examined_is_not_replaced(
    run, tmp_path: Path, monkeypatch, ends: bool
) -> None:
    file = tmp_path / "backup.db"
    run("backup", str(file))
    prove = backup.prove

    def slow_prove(*given):
        facts = prove(*given)
        installation = Installation()
        worker = Control(installation.database, installation.clock)
        worker.start()
        if ends:
            worker.stop()
        installation.close()
        return facts

    monkeypatch.setattr(backup, "prove", slow_prove)
    assert "gateway" in run("restore", str(file), status=1)
    assert not list(tmp_path.glob("**/*before*")) and not list(tmp_path.glob("**/.*restore*"))


FOREIGN = {
    "columns of another program": "CREATE TABLE migration (id INTEGER, applied TEXT)",
    "a name that is a view": "CREATE VIEW migration AS SELECT 1 AS name, 2 AS checksum, 3 AS state",
    "no step at all": "CREATE TABLE migration (name TEXT PRIMARY KEY, checksum TEXT, state TEXT);"
    "CREATE TABLE control (x)",
    "steps of another program": "CREATE TABLE migration (name TEXT PRIMARY KEY, checksum TEXT, state TEXT);"
    "INSERT INTO migration VALUES ('0001_initial', 'abc', 'applied')",
    "values that are no text": "CREATE TABLE migration (name BLOB, checksum, state);"
    "INSERT INTO migration VALUES (x'ff00', 1.5, NULL)",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_database_of_another_program_is_refused_with_a_reason(run, tmp_path: Path, kind: str) -> None:
    """A table named `migration` was enough to be taken for the gateway's own: the command ended with a traceback."""
    with sqlite3.connect(tmp_path / "foreign.db") as connection:
        connection.executescript(FOREIGN[kind])
    output = run("restore", str(tmp_path / "foreign.db"), status=1)
    assert output.startswith("error: The file is not a database of the gateway")
    assert sorted(path.name for path in tmp_path.glob(".*restore*")) == []


def test_a_backup_without_one_of_its_tables_is_refused_with_a_reason(run, tmp_path: Path) -> None:
    for table in ("usage", "control", "budget", "organization"):
        file = tmp_path / f"without-{table}.db"
        run("backup", str(file))
        with sqlite3.connect(file) as connection:
            connection.execute(f"DROP TABLE {table}")
        output = run("restore", str(file), "--verify", status=1)
        assert output.startswith("error: ") and table in output, output
