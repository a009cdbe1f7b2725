"""A configuration takes effect as a whole or not at all."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.two_providers import write_twins

from gateway.catalogue.loader import CatalogueError
from gateway.configuration.settings import SettingsError
from gateway.worker import accepted_configuration


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Accept a configuration with the operator's own catalogue folder."""
    environment = write_twins(tmp_path / "own", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1")
    environment |= {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path / "data")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    accepted_configuration.begin()
    yield tmp_path / "own"
    accepted_configuration._current.clear()
    accepted_configuration.refusal.write("")


def spoil(own: Path) -> None:
    (own / "providers" / "north.toml").write_text('name = "North"\nprotocol = "telepathy"\n')


def test_a_valid_change_is_accepted_and_ends_a_refusal(own: Path) -> None:
    before = accepted_configuration.current()
    accepted_configuration.refuse(CatalogueError("one\ntwo"))
    assert (
        "the catalogue was refused" in accepted_configuration.refusal.read()
        and "2 mistakes" in accepted_configuration.refusal.read()
    )
    (own / "models" / "more.toml").write_text('[[models]]\nid = "another"\nfamily = "test"\n')
    assert accepted_configuration.renew() == []
    after = accepted_configuration.current()
    assert before is not None and after is not None and before.catalogue.version != after.catalogue.version
    assert accepted_configuration.refusal.read() == ""


@pytest.mark.parametrize("address", ["http:// not an address", "http://", "localhost:8080/v1", "http://host:port/v1"])
def test_an_address_of_a_provider_that_cannot_be_one_is_refused_with_its_variable(
    own: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("LLM_OPENAI_BASE_URL", address)
    with pytest.raises(SettingsError, match="LLM_OPENAI_BASE_URL: "):
        accepted_configuration.check()
    assert any(problem.startswith("LLM_OPENAI_BASE_URL: ") for problem in accepted_configuration.find_problems())


def test_an_address_in_the_operators_file_is_refused_with_its_line(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = own.parent / "gateway.toml"
    file.write_text('[providers.openai]\n\nbase_url = "http:// not an address"\n')
    monkeypatch.setenv("GATEWAY_CONFIG", str(file))
    with pytest.raises(SettingsError, match=r"LLM_OPENAI_BASE_URL: .* \(from gateway.toml:3\)"):
        accepted_configuration.check()


def test_a_setting_that_makes_no_address_is_refused_with_its_variable(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_AZURE_RESOURCE", "my resource")
    with pytest.raises(SettingsError, match="LLM_AZURE_RESOURCE: an address has no blanks"):
        accepted_configuration.check()


def test_a_mistake_leaves_everything_as_it_was(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = accepted_configuration.current()
    spoil(own)
    with pytest.raises(CatalogueError, match="telepathy"):
        accepted_configuration.renew()
    monkeypatch.setenv("WEB_CONCURRENCY", "many")
    with pytest.raises(SettingsError, match="workers"):
        accepted_configuration.renew()
    assert (
        accepted_configuration.current() is before
        and "the configuration was refused" in accepted_configuration.refusal.read()
    )


def test_address_and_store_wait_for_a_restart(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = accepted_configuration.current()
    monkeypatch.setenv("HOST", "127.0.0.7")
    monkeypatch.setenv("PORT", "4444")
    monkeypatch.setenv("DATABASE_URL", "sqlite:///elsewhere.db")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(own))
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    assert accepted_configuration.renew() == ["server.host", "server.port", "database.url", "database.data_dir"]
    now = accepted_configuration.current()
    assert before is not None and now is not None and now.settings.server.workers == 3
    assert (now.settings.server.host, now.settings.server.port) == (before.settings.server.host, 4001)
    assert now.settings.database == before.settings.database


def test_a_start_takes_the_copy_where_the_files_are_broken(own: Path) -> None:
    before = accepted_configuration.current()
    spoil(own)
    found = accepted_configuration.begin()
    assert before is not None and found.catalogue == before.catalogue and found.since
    assert (
        "telepathy" in accepted_configuration.in_one_line(found.problems)
        and found.since in accepted_configuration.refusal.read()
    )


def test_files_that_change_are_noticed(own: Path) -> None:
    now = accepted_configuration.current()
    assert now is not None
    before = accepted_configuration.fingerprint(now.settings)
    assert accepted_configuration.fingerprint(now.settings) == before
    os.utime(own / "providers" / "north.toml", (1, 1))
    assert accepted_configuration.fingerprint(now.settings) != before


def test_a_note_is_read_in_a_process_that_was_forked_before_it_was_written() -> None:
    note = accepted_configuration.Note()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.read(read, 1)
        os._exit(0 if note.read() == "größer" else 1)
    note.write("längst vorbei")
    note.write("größer")
    os.write(write, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
