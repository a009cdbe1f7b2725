"""Layers of catalogue data: the packed snapshot and folders of TOML, read field by field and laid over each other."""

import copy
import gzip
import hashlib
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.fields import MODEL_ID, PROVIDER_ID, read_fields

Key = tuple[str, str, str]  # provider, model, region
Fields = dict[str, Any]
REMOVED = "remove"


@dataclass(slots=True)
class Layer:
    """Fields as far as they are stated; an entry with only REMOVED drops what lower layers say of it, a provider with
    its mappings.

    `join` and `vendors` are rules of the builder. `named` are the providers that it speaks of, removed ones too.
    `digest` changes with any byte that was read.
    """

    providers: dict[str, Fields] = field(default_factory=dict)
    models: dict[str, Fields] = field(default_factory=dict)
    mappings: dict[Key, Fields] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    join: dict[str, str] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    digest: str = ""
    named: list[str] = field(default_factory=list)


def read_snapshot(path: Path) -> Layer:
    """The packed snapshot; an empty layer when there is none."""
    layer = Layer()
    if not path.exists():
        return layer
    try:
        packed = path.read_bytes()
        tree = json.loads(gzip.decompress(packed))
        for raw in tree["models"]:
            _add_model(layer, raw, path.name)
        for raw in tree["mappings"]:
            _add_mapping(layer, raw.pop("provider"), raw, path.name)
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        layer.problems.append(f"{path.name}: not a snapshot: {error!r}; build it again")
        return layer
    layer.digest = hashlib.sha256(packed).hexdigest()
    return layer


def read_folder(folder: Path) -> Layer:
    """Every TOML file of a catalogue folder: providers/, models/ and aliases.toml, each optional."""
    layer = Layer()
    digest = hashlib.sha256()
    for path in sorted(folder.glob("models/*.toml")):
        tree = _read_file(path, digest, layer.problems)
        for raw in _tables(tree.pop("models", []), path.name, layer.problems):
            _add_model(layer, raw, path.name)
        _refuse_rest(tree, path.name, layer.problems)
    for path in sorted(folder.glob("providers/*.toml")):
        _add_provider(layer, path.stem, _read_file(path, digest, layer.problems), path.name)
    if (folder / "aliases.toml").exists():
        tree = _read_file(folder / "aliases.toml", digest, layer.problems)
        for name, target in (("alias", layer.aliases), ("join", layer.join), ("maker", layer.makers)):
            target.update(_texts_of(tree.pop(name, {}), f"aliases.toml [{name}]", layer.problems))
        _refuse_rest(tree, "aliases.toml", layer.problems)
    layer.digest = digest.hexdigest()
    return layer


def read_tables(tables: Fields, name: str) -> Layer:
    """The catalogue's part of one file: providers by id (a provider without a field is only named), models, aliases."""
    layer = Layer()
    given = copy.deepcopy(tables)
    for raw in _tables(given.get("models", []), name, layer.problems):
        _add_model(layer, raw, name)
    for ident, tree in given.get("providers", {}).items():
        layer.named.append(ident)
        _add_provider(layer, ident, tree, f"{name}: provider {ident}")
    layer.aliases.update(_texts_of(given.get("aliases", {}), f"{name} [aliases]", layer.problems))
    layer.digest = hashlib.sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()
    return layer


def overlay(layers: Iterable[Layer]) -> Layer:
    """One layer of all, later ones winning field by field."""
    merged = Layer()
    digest = hashlib.sha256()
    for layer in layers:
        removed = {ident for ident, fields in layer.providers.items() if fields.get(REMOVED)}
        merged.mappings = {key: fields for key, fields in merged.mappings.items() if key[0] not in removed}
        merged.named += [*layer.providers, *layer.named]
        for name in ("providers", "models", "mappings"):
            _overlay_entries(getattr(merged, name), getattr(layer, name))
        merged.aliases.update(layer.aliases)
        merged.join.update(layer.join)
        merged.makers.update(layer.makers)
        merged.problems.extend(layer.problems)
        digest.update(layer.digest.encode())
    merged.digest = digest.hexdigest()[:12]
    return merged


def _overlay_entries(under: dict[Any, Fields], over: dict[Any, Fields]) -> None:
    for key, fields in over.items():
        if fields.get(REMOVED):
            under.pop(key, None)
        elif key in under:
            under[key] = under[key] | fields
        else:
            under[key] = fields


def _read_file(path: Path, digest: Any, problems: list[str]) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        digest.update(path.name.encode() + b"\0" + data)
        return tomllib.loads(data.decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{path.name}: {error}")
        return {}


def _add_model(layer: Layer, raw: Fields, where: str) -> None:
    ident = raw.get("id")
    if not isinstance(ident, str) or not MODEL_ID.fullmatch(ident):
        layer.problems.append(f"{where}: a model needs an id of lower-case letters, digits and . _ : @ + -: {ident!r}")
        return
    _add(layer.models, ident, Model, raw, f"{where}: model {ident}", layer.problems)


def _add_provider(layer: Layer, ident: str, tree: Fields, where: str) -> None:
    if not PROVIDER_ID.fullmatch(ident):
        layer.problems.append(f"{where}: {ident!r} is no provider id, which has lower-case letters, digits, . and -")
        return
    for raw in _tables(tree.pop("mappings", []), where, layer.problems):
        _add_mapping(layer, ident, raw, where)
    if tree:
        tree["id"] = ident
        _add(layer.providers, ident, Provider, tree, where, layer.problems)


def _add_mapping(layer: Layer, provider: str, raw: Fields, where: str) -> None:
    model, region = raw.get("model"), raw.get("region", "")
    if not isinstance(model, str) or not isinstance(region, str):
        layer.problems.append(f"{where}: a mapping needs a model (and its region is text): {raw.get('external_id')!r}")
        return
    raw["provider"] = provider
    _add(layer.mappings, (provider, model, region), Mapping, raw, f"{where}: mapping {model}", layer.problems)


def _add(table: dict[Any, Fields], key: Any, kind: type, raw: Fields, where: str, problems: list[str]) -> None:
    if key in table:
        problems.append(f"{where}: defined twice")
    if raw.pop(REMOVED, False) is True:
        table[key] = {REMOVED: True}
    else:
        table[key] = read_fields(kind, raw, where, problems)


def _tables(value: Any, where: str, problems: list[str]) -> list[Fields]:
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    problems.append(f"{where}: expected [[…]] tables, got {value!r}")
    return []


def _texts_of(value: Any, where: str, problems: list[str]) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return value
    problems.append(f"{where}: expected a table of texts")
    return {}


def _refuse_rest(tree: dict[str, Any], where: str, problems: list[str]) -> None:
    problems.extend(f"{where}: unknown table {name}" for name in tree)
