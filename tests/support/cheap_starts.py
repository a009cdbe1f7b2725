"""Gateways that start in a third of the time: what the same files and keys give is worked out once in this process.

The suite starts hundreds of gateways in one process, the product one a worker. What a start decides is not touched.
"""

from functools import cache
from pathlib import Path
from typing import Any

from werkzeug.routing import Rule

from gateway.catalogue import loader
from gateway.store import installation


def make_cheap() -> None:
    """From now on in this process."""
    _keep_layers("read_snapshot", loader.FOLDER / loader.SNAPSHOT)
    _keep_layers("read_folder", loader.FOLDER)
    installation._fingerprint = cache(installation._fingerprint)
    # Addresses are only ever matched; Werkzeug prepares for each what would write it too, most of a start's work.
    Rule._compile_builder = lambda rule, append_unknown=True: _write_no_address  # type: ignore[assignment]


def _write_no_address(rule: Rule, **values: Any) -> None:
    raise NotImplementedError("No address is written from a rule.")


def _keep_layers(name: str, own: Path) -> None:
    """The product's own part of the catalogue, which no test changes in place, is read once."""
    read = getattr(loader, name)
    kept = cache(read)

    def read_once(path: Path) -> Any:
        return kept(path) if path == own else read(path)

    setattr(loader, name, read_once)
