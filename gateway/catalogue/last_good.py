"""The last valid catalogue: a copy of files that passed their check, for a start when they no longer do."""

import json
import os
import secrets
import shutil
from pathlib import Path

from msgspec import Struct

from gateway.catalogue import loader
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.loader import CatalogueSources
from gateway.clock import to_iso

FOLDER = "catalogue"
SHIPPED = "ours"
OPERATORS = "own"
TABLES = "tables.json"
COPIES = 3
MODE = 0o700


class SavedCatalogue(Struct, frozen=True):
    """A catalogue read from its copy, and when it was last in force (ISO 8601)."""

    catalogue: Catalogue
    since: str


def keep(data: Path, sources: CatalogueSources, version: str) -> None:
    """Copy the source files of the catalogue `version` below `data`, or mark the existing copy as in force again.

    Only the newest few copies are kept. Raise OSError.
    """
    data.mkdir(mode=MODE, parents=True, exist_ok=True)
    home = data / FOLDER
    place = home / version
    if place.is_dir():
        os.utime(place)
        return
    new = home / f".{version}-{secrets.token_hex(4)}"
    try:
        _copy(sources.folder, new / SHIPPED)
        if sources.path:
            _copy(Path(sources.path), new / OPERATORS)
        (new / TABLES).write_text(json.dumps(sources.tables, default=str))
        new.rename(place)
    except FileExistsError:  # another process was faster
        pass
    finally:
        shutil.rmtree(new, ignore_errors=True)
    for old in _newest_first(home)[COPIES:]:
        shutil.rmtree(old, ignore_errors=True)


def find(data: Path, *, sandbox: bool) -> SavedCatalogue | None:
    """Return the newest copy that this version of the gateway can read; None if there is none."""
    for place in _newest_first(data / FOLDER):
        own = place / OPERATORS
        try:
            tables = json.loads((place / TABLES).read_text())
            path = str(own) if own.is_dir() else ""
            catalogue = loader.load(path, sandbox=sandbox, folder=place / SHIPPED, tables=tables)
        except (loader.CatalogueError, OSError, ValueError):
            continue
        return SavedCatalogue(catalogue, to_iso(place.stat().st_mtime_ns // 1000))
    return None


def _copy(source: Path, target: Path) -> None:
    """Copy the files that the loader reads from a folder, and no others."""
    for pattern in (loader.SNAPSHOT, "aliases.toml", "models/*.toml", "providers/*.toml"):
        folder, _, name = pattern.rpartition("/")
        place = target / folder
        place.mkdir(mode=MODE, parents=True, exist_ok=True)
        for path in (source / folder).glob(name):
            (place / path.name).write_bytes(path.read_bytes())


def _modified_ns(path: Path) -> int:
    return path.stat().st_mtime_ns


def _newest_first(home: Path) -> list[Path]:
    places = [path for path in home.glob("*") if not path.name.startswith(".")]
    return sorted(places, key=_modified_ns, reverse=True)
