"""Layers of catalogue data: the packed snapshot and folders of TOML, read field by field and overlaid."""

import copy
import dataclasses
import gzip
import hashlib
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.field_checks import MODEL_ID, PROVIDER_ID, read_fields
from gateway.configuration.file import API_KEY, BASE_URL, VALUES, TomlLines, TomlPlace
from gateway.configuration.file import NAME as CONFIGURATION
from gateway.configuration.setting_checks import suggest_similar

Key = tuple[str, str, str]  # provider, model, region
Fields = dict[str, Any]
REMOVED = "remove"
ALIASES = "aliases.toml"
READ = ("providers", "models", ALIASES)  # of a catalogue folder
# Files beside them that other parts read: signatures of client applications, and the operator's configuration.
OTHER_FILES = ("clients.toml", "sessions.toml", CONFIGURATION)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Layer:
    """The fields that one source states. It does not change after it was read.

    An entry with only REMOVED drops the entry of lower layers, for a provider including its mappings. `join` and
    `vendors` are rules of the snapshot builder. `named` are the providers that the layer mentions, including removed
    ones. `digest` changes with any byte that was read. `places` are the locations of entries by class and key;
    `faulty` are entries with invalid fields.
    """

    providers: dict[str, Fields] = field(default_factory=dict)
    models: dict[str, Fields] = field(default_factory=dict)
    mappings: dict[Key, Fields] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    join: dict[str, str] = field(default_factory=dict)
    vendors: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    digest: str = ""
    named: list[str] = field(default_factory=list)
    places: dict[tuple[type, Any], TomlPlace] = field(default_factory=dict)
    faulty: set[tuple[type, Any]] = field(default_factory=set)


# Layers without problems that something still uses, by digest: files with the same content are parsed once.
_in_use: WeakValueDictionary[str, Layer] = WeakValueDictionary()


def read_snapshot(path: Path) -> Layer:
    """Read the packed snapshot; an empty layer if it does not exist."""
    layer = Layer()
    if not path.exists():
        return layer
    try:
        packed = path.read_bytes()
        layer.digest = hashlib.sha256(packed).hexdigest()
        if known := _in_use.get(layer.digest):
            return known
        tree = json.loads(gzip.decompress(packed))
        for raw in tree["models"]:
            _add_model(layer, raw, TomlPlace(path.name))
        for raw in tree["mappings"]:
            _add_mapping(layer, raw.pop("provider"), raw, TomlPlace(path.name))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        layer.problems.append(f"{path.name}: not a snapshot: {error!r}; build it again")
        layer.digest = ""
        return layer
    return _share(layer)


def _share(layer: Layer) -> Layer:
    if not layer.problems:
        _in_use[layer.digest] = layer
    return layer


def read_folder(folder: Path) -> Layer:
    """Read every TOML file of a catalogue folder: providers/, models/ and aliases.toml, each optional.

    A TOML file anywhere else is a mistake, unless its name is in OTHER_FILES.
    """
    layer = Layer()
    layer.problems.extend(_misplaced(folder))
    files = _read_files(folder, layer)
    known = _in_use.get(layer.digest)
    if known is not None and not layer.problems:
        return known
    for path, data in files.items():
        tree, lines = _parse(path, data, layer.problems)
        place = TomlPlace(path.name, "", lines)
        if path.parent.name == "providers":
            _add_provider(layer, path.stem, tree, place)
        elif path.parent.name == "models":
            tables = tree.pop("models", [])
            for entry, raw in _tables(tables, dataclasses.replace(place, table="models"), layer.problems):
                _add_model(layer, raw, entry)
            _refuse_rest(tree, place, layer.problems, ("models",))
        else:
            _add_aliases(layer, tree, place)
    return _share(layer)


def _read_files(folder: Path, layer: Layer) -> dict[Path, bytes]:
    """Return the contents of a folder's files in the order in which they apply, and set the layer's digest."""
    digest = hashlib.sha256()
    files = {}
    for pattern in ("models/*.toml", "providers/*.toml", ALIASES):
        for path in sorted(folder.glob(pattern)):
            try:
                files[path] = path.read_bytes()
            except OSError as error:
                files[path] = b""
                layer.problems.append(f"{path.name}: {error}")
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + files[path])
    layer.digest = digest.hexdigest()
    return files


def _add_aliases(layer: Layer, tree: Fields, place: TomlPlace) -> None:
    for name, target in (("alias", layer.aliases), ("join", layer.join), ("maker", layer.vendors)):
        target.update(_texts_of(tree.pop(name, {}), f"{ALIASES} [{name}]", layer.problems))
    _place_aliases(layer, layer.aliases, dataclasses.replace(place, table="alias"))
    _refuse_rest(tree, place, layer.problems, ("alias", "join", "maker"))


def _misplaced(folder: Path) -> list[str]:
    """Return problems for TOML files at the root and in subfolders that are not read."""
    problems = []
    for path in sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml")]):
        place = path.relative_to(folder)
        if place.parts[0] not in (*READ, *OTHER_FILES):
            problems.append(f"{place}: not read here: a provider belongs to providers/, models belong to models/")
    return problems


def read_tables(tables: Fields, file: TomlPlace) -> Layer:
    """Read the catalogue's part of the operator's file: providers by id, models and aliases.

    A provider without any field is only named.
    """
    layer = Layer()
    remaining = copy.deepcopy(tables)
    for place, raw in _tables(remaining.get("models", []), dataclasses.replace(file, table="models"), layer.problems):
        _add_model(layer, raw, place)
    for ident, tree in remaining.get("providers", {}).items():
        place = dataclasses.replace(file, entry=f"provider {ident}", table=f"providers.{ident}")
        layer.named.append(ident)
        layer.places[Provider, ident] = place
        _add_provider(layer, ident, tree, place, (API_KEY, BASE_URL, VALUES))
    aliases = _texts_of(remaining.get("aliases", {}), f"{file.name} [aliases]", layer.problems)
    _place_aliases(layer, aliases, dataclasses.replace(file, table="aliases"))
    layer.aliases.update(aliases)
    layer.digest = hashlib.sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()
    return layer


def overlay(layers: Iterable[Layer]) -> Layer:
    """Merge all layers; later ones take precedence field by field."""
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
        merged.vendors.update(layer.vendors)
        merged.places.update(layer.places)
        merged.faulty |= layer.faulty
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


def _parse(path: Path, data: bytes, problems: list[str]) -> tuple[dict[str, Any], TomlLines | None]:
    try:
        text = data.decode()
        return tomllib.loads(text), TomlLines(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{path.name}: {error}")
        return {}, None


def _place_aliases(layer: Layer, names: Iterable[str], place: TomlPlace) -> None:
    layer.places.update({(str, name): place for name in names})


def _add_model(layer: Layer, raw: Fields, place: TomlPlace) -> None:
    ident = raw.get("id")
    if not isinstance(ident, str) or not MODEL_ID.fullmatch(ident):
        rule = "a model needs an id of lower-case letters, digits and . _ : @ + -"
        layer.problems.append(f"{place.at('id')}: {rule}: {ident!r}")
        return
    _add(layer, layer.models, ident, Model, raw, _within(place, f"model {ident}"))


def _add_provider(layer: Layer, ident: str, tree: Fields, place: TomlPlace, also: tuple[str, ...] = ()) -> None:
    """Add a provider with its mappings. `also`: fields that are read elsewhere, for suggestions."""
    if not PROVIDER_ID.fullmatch(ident):
        layer.problems.append(f"{place}: {ident!r} is no provider id, which has lower-case letters, digits, . and -")
        return
    table = f"{place.table}.mappings".lstrip(".")
    for entry, raw in _tables(tree.pop("mappings", []), dataclasses.replace(place, table=table), layer.problems):
        _add_mapping(layer, ident, raw, entry)
    if tree:
        tree["id"] = ident
        _add(layer, layer.providers, ident, Provider, tree, place, also)


def _add_mapping(layer: Layer, provider: str, raw: Fields, place: TomlPlace) -> None:
    model = raw.get("model")
    region = raw.get("region", "")
    if not isinstance(model, str) or not isinstance(region, str):
        layer.problems.append(f"{place}: a mapping needs a model (and its region is text): {raw.get('external_id')!r}")
        return
    raw["provider"] = provider
    _add(layer, layer.mappings, (provider, model, region), Mapping, raw, _within(place, f"mapping {model}"))


def _add(
    layer: Layer,
    table: dict[Any, Fields],
    key: Any,
    kind: type,
    raw: Fields,
    place: TomlPlace,
    also: tuple[str, ...] = (),
) -> None:
    if key in table:
        layer.problems.append(f"{place}: defined twice")
    if place.lines is not None:
        layer.places[kind, key] = place
    if raw.pop(REMOVED, False) is True:
        table[key] = {REMOVED: True}
    else:
        table[key] = read_fields(kind, raw, place.at, layer.problems, also if kind is Provider else ())
        if len(table[key]) < len(raw):
            layer.faulty.add((kind, key))


def _within(place: TomlPlace, entry: str) -> TomlPlace:
    return dataclasses.replace(place, entry=f"{place.entry}: {entry}" if place.entry else entry)


def _tables(value: Any, place: TomlPlace, problems: list[str]) -> list[tuple[TomlPlace, Fields]]:
    """Return the tables of a list, each with its location."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return [(dataclasses.replace(place, nth=nth), item) for nth, item in enumerate(value)]
    problems.append(f"{place}: expected [[…]] tables, got {value!r}")
    return []


def _texts_of(value: Any, where: str, problems: list[str]) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return value
    problems.append(f"{where}: expected a table of texts")
    return {}


def _refuse_rest(tree: dict[str, Any], place: TomlPlace, problems: list[str], known: tuple[str, ...]) -> None:
    problems.extend(
        f"{dataclasses.replace(place, table=name)}: unknown table {name}{suggest_similar(name, known)}" for name in tree
    )
