"""The tables of masked values: encrypted, bounded in bytes, and readable after a change of the encryption key."""

import pytest
from support.clock import FakeClock

from gateway.callers.vault import Vault
from gateway.engine import guarding
from gateway.engine.guarding import SessionTables


@pytest.fixture
def tables() -> SessionTables:
    return SessionTables(Vault(("a key of the installation",)), None, FakeClock())


def test_large_values_do_not_grow_a_table_without_limit(tables: SessionTables) -> None:
    values = {f"{number:010}": f"{number} " + "x" * 100_000 for number in range(20)}
    tables.write("s", values, shared=True)
    kept = tables.read("s")
    assert list(kept) == ["0000000018", "0000000019"]


def test_all_tables_together_are_bounded(tables: SessionTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "TABLES_BYTES", 500_000)
    for number in range(20):
        tables.write(f"s{number}", {"A": "x" * 100_000}, shared=True)
        tables.write(f"s{number}", {"A": "y" * 100_000}, shared=True)
    known = [number for number in range(20) if tables.read(f"s{number}")]
    assert known == [16, 17, 18, 19]
    assert tables.read("s19") == {"A": "y" * 100_000}


def test_value_that_is_no_unicode_is_left_out(tables: SessionTables) -> None:
    tables.write("s", {"A": "a\ud800", "B": "b", "C": "\U0001f600"}, shared=True)
    assert tables.read("s") == {"B": "b", "C": "\U0001f600"}


def test_table_of_a_former_key_is_empty_instead_of_an_error(tables: SessionTables) -> None:
    tables.write("s", {"A": "a"}, shared=True)
    tables._vault = Vault(("another key",))
    assert tables.read("s") == {}
