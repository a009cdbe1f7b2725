"""The copy of the last valid catalogue replaces files that no longer pass their check."""

import os
from pathlib import Path

import pytest
from support.two_providers import write_twins

from gateway.catalogue import last_good, loader


@pytest.fixture
def own(tmp_path: Path) -> str:
    return write_twins(tmp_path / "own", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1")["GATEWAY_CATALOGUE_PATH"]


def test_the_stored_catalogue_is_read_unchanged(own: str, tmp_path: Path) -> None:
    before = loader.load(own)
    last_good.keep(tmp_path, loader.CatalogueSources(own), before.version)
    Path(own, "providers/north.toml").write_text("name =")
    found = last_good.find(tmp_path, sandbox=True)
    assert found is not None and found.catalogue == before and found.since.endswith("Z")


def test_the_newest_copy_that_can_be_read_counts_and_few_stay(own: str, tmp_path: Path) -> None:
    for number in range(5):
        last_good.keep(tmp_path, loader.CatalogueSources(own), f"version{number}")
        os.utime(tmp_path / last_good.FOLDER / f"version{number}", (number, number))
    last_good.keep(tmp_path, loader.CatalogueSources(own), "version5")
    assert sorted(path.name for path in (tmp_path / last_good.FOLDER).iterdir()) == ["version3", "version4", "version5"]
    (tmp_path / last_good.FOLDER / "version5/own/providers/north.toml").write_text("name =")
    found = last_good.find(tmp_path, sandbox=True)
    assert found is not None and found.since.startswith("1970-01-01T00:00:04")


def test_without_a_copy_nothing_is_found(tmp_path: Path) -> None:
    assert last_good.find(tmp_path / "nowhere", sandbox=True) is None
