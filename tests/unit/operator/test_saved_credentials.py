"""A saved list of credentials shows what a restore made valid again, on PostgreSQL as on SQLite."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from support.servers import find_postgres

from gateway.configuration import settings
from gateway.operator.backup import path_of


class Copy:
    """A copy of the database of the commands, taken when it is made, as an operator takes it."""

    def __init__(self, folder: Path) -> None:
        self._chosen = settings.load().database
        self._file = folder / "copy"
        if self._chosen.scheme == "sqlite":
            self._path = path_of(self._chosen)
            shutil.copy(self._path, self._file)
        else:
            self._run("pg_dump", "--format=custom", f"--file={self._file}", f"--dbname={self._chosen.url}")

    def restore(self) -> None:
        if self._chosen.scheme == "sqlite":
            for name in ("-wal", "-shm"):
                Path(f"{self._path}{name}").unlink(missing_ok=True)
            shutil.copy(self._file, self._path)
        else:
            self._run("pg_restore", "--clean", "--if-exists", f"--dbname={self._chosen.url}", str(self._file))

    @staticmethod
    def _run(program: str, *arguments: str) -> None:
        subprocess.run([find_postgres() / program, *arguments], check=True, capture_output=True, timeout=60)


def test_what_a_restore_made_valid_again_is_listed(run, tmp_path: Path) -> None:
    made = [run("keys", "create", "--description", name) for name in ("Stays", "Ends", "Rolled")]
    stays, ends, rolled = (re.search(r"key_\w+", shown)[0] for shown in made)
    organization = json.loads(run("organizations", "list", "--json"))[0]["id"]
    left = run("members", "add", organization, "left@example.com")
    run("members", "set-password", "owner@localhost", typed="correct horse battery\n")
    own = run("provider-keys", "add", organization, "groq", typed="gsk_of_the_tests\n").splitlines()[0]
    created = run("service-accounts", "create", "Robot", "--scope", "keys:read", "--organization", organization)
    account = created.split()[0]
    copy = Copy(tmp_path)
    run("keys", "delete", ends)
    run("keys", "roll", rolled)
    run("members", "deactivate", left)
    run("members", "set-password", "owner@localhost", typed="another password\n")
    run("provider-keys", "remove", own)
    run("service-accounts", "delete", account, "--organization", organization)
    file = tmp_path / "valid.json"
    assert "Saved in" in run("credentials", "save", str(file)) and file.stat().st_mode & 0o777 == 0o600
    assert "Nothing is valid" in run("credentials", "compare", str(file))
    copy.restore()
    revived = json.loads(run("credentials", "compare", str(file), "--json", status=1))["revived"]
    assert revived["keys"] == sorted([ends, rolled]) and revived["provider_keys"] == [own]
    assert revived["service_accounts"] == [account] and left in revived["members"]
    assert "owner@localhost" in revived["users"] and "scim_tokens" not in revived
    shown = run("credentials", "compare", str(file), status=1)
    assert f"now valid again: keys {', '.join(sorted([ends, rolled]))}." in shown and stays not in shown
    for key in (ends, rolled):
        run("keys", "delete", key)
    assert "keys" not in json.loads(run("credentials", "compare", str(file), "--json", status=1))["revived"]


def test_a_list_has_no_secrets_and_is_replaced_at_once(run, tmp_path: Path) -> None:
    token = re.search(r"llmgtwy_\S+", run("keys", "create", "--description", "CI"))[0]
    file = tmp_path / "valid.json"
    file.write_text("an older list")
    saved = json.loads(run("credentials", "save", str(file), "--json"))["saved"]
    assert saved["keys"] == 2 and saved["members"] == saved["users"] == 1
    text = file.read_text()
    assert token not in text and token[8:] not in text and "@" not in text
    assert os.listdir(tmp_path).count(file.name) == 1 and not list(tmp_path.glob(".valid*"))


def test_a_list_that_is_older_than_the_database_is_named(run, tmp_path: Path) -> None:
    file = tmp_path / "valid.json"
    run("credentials", "save", str(file))
    key = re.search(r"key_\w+", run("keys", "create", "--description", "Later"))[0]
    shown = run("credentials", "compare", str(file), status=1)
    assert key in shown and "newer than" in shown
    file.write_text("{}")
    assert "is not a list" in run("credentials", "compare", str(file), status=1)
