"""Keeps the product's catalogue at its state on DAY: later shutdowns and price changes are ignored.

Models in the catalogue end on their vendors' dates, and tests that call such a model would fail after that date without
any change. Earlier dates and catalogues of tests are unaffected. A cold process reads the original files.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.catalogue import last_good, loader
from gateway.catalogue.layers import Layer

DAY = "2026-11-22"  # may be moved to any later day on which the tests pass
TABLES, DATES = ("deprecated_models", "deactivated_models"), ("deprecated", "deactivated")


def make_steady() -> None:
    """Keep the catalogue at DAY in this process."""
    _read_as_then("read_snapshot", loader.FOLDER / loader.SNAPSHOT)
    _read_as_then("read_folder", loader.FOLDER)


def _read_as_then(name: str, own: Path) -> None:
    read = getattr(loader, name)

    def read_steady(path: Path) -> Layer:
        layer: Layer = read(path)
        if path == own or last_good.OURS in path.parts:
            as_then(layer, f"{datetime.now(UTC):%Y-%m-%d}")
        return layer

    setattr(loader, name, read_steady)


def as_then(layer: Layer, today: str) -> None:
    """Delete, in place, past dates that are later than DAY."""

    def came(text: Any) -> bool:
        return isinstance(text, str) and DAY < text <= today

    for provider in layer.providers.values():
        for name in TABLES:
            if name in provider:
                provider[name] = {model: day for model, day in provider[name].items() if not came(day)}
    for entry in (*layer.models.values(), *layer.mappings.values()):
        for name in DATES:
            if came(entry.get(name)):
                del entry[name]
        if "prices" in entry:
            entry["prices"] = tuple(prices for prices in entry["prices"] if not came(prices.from_date))
