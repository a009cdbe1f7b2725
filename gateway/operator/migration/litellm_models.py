"""LiteLLM's config.yaml as providers, models and aliases of gateway.toml.

The format is that of LiteLLM's documentation: model_list with litellm_params and model_info, litellm_settings,
router_settings and general_settings.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct, field

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model
from gateway.configuration.settings import CONFIG
from gateway.errors import InvalidRequest
from gateway.money import read_decimal

# The report of a migration: what was carried over, what is left to do, and what has no counterpart.

TITLES = {
    "taken": "Carried over",
    "todo": "To do by hand",
    "replaced": "Works differently here",
    "absent": "No counterpart",
}


class MigrationReport(Struct):
    """The lines of each section, in the order of `TITLES`; repeated lines are shown once."""

    taken: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def sections(self) -> dict[str, list[str]]:
        """Return the lines by section."""
        return {name: list(dict.fromkeys(getattr(self, name))) for name in TITLES}

    def write(self) -> str:
        """Return the report as Markdown."""
        parts = []
        for name, lines in self.sections().items():
            if lines:
                parts.append("\n".join([f"## {TITLES[name]}", "", *(f"- {line}" for line in lines)]))
        return "\n\n".join(["# Migration from LiteLLM", *parts]) + "\n"


Table = dict[str, Any]
MAX_BYTES = 8 << 20
ENVIRONMENT = "os.environ/"
SECTIONS = ("litellm_settings", "router_settings", "general_settings")
MODEL_ID = re.compile(r"[a-z0-9._:@+-]+")
NOT_IN_ID = re.compile(r"[^a-z0-9.]+")
# `model_info.mode` → the operation of a mapping; chat is the usual one.
MODES = {
    "embedding": "embeddings",
    "image_generation": "images",
    "audio_transcription": "transcriptions",
    "audio_speech": "speech",
    "rerank": "rerank",
    "moderation": "moderations",
    "realtime": "realtime",
}
FREE = "0"
SIZES = (("context_length", ("max_input_tokens", "max_tokens")), ("max_output", ("max_output_tokens",)))
# Parts of a vendor's id that the catalogue's names lack: a region in front, a date or a version at the end.
REGION = re.compile(r"^(us|eu|apac|global)\.")
ENDS = re.compile(r"(-\d{8})?(-v\d+(:\d+)?)?$")


class Words(Struct, frozen=True):
    """The table `config/migration/litellm.toml`."""

    providers: dict[str, str]
    compatible: frozenset[str]
    routes: frozenset[str]
    taken: frozenset[str]
    notes: dict[str, str]
    settings: dict[str, dict[str, str]]


class ModelPlan(Struct):
    """The result of a configuration: tables of gateway.toml, files with keys by name, and the model here for each
    model name of the callers."""

    providers: dict[str, Table] = field(default_factory=dict)
    models: dict[str, Table] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def read_words() -> Words:
    """Read the table of names."""
    table = tomllib.loads((CONFIG / "migration" / "litellm.toml").read_text())
    deployment = table["deployment"]
    return Words(
        table["providers"],
        frozenset(table["compatible"]["names"]),
        frozenset(table["routes"]["names"]),
        frozenset(deployment["taken"]),
        deployment["notes"],
        table["settings"],
    )


def read_config(path: Path) -> Table:
    """Return the content of a configuration file. InvalidRequest if it is not one."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidRequest(f"{path} is larger than {MAX_BYTES >> 20} MiB.")
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InvalidRequest(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model_list", []), list):
        raise InvalidRequest(f"{path} is no configuration of LiteLLM: model_list is not a list.")
    return content


class ModelMigration:
    """Reads the configuration into a plan and a report."""

    def __init__(self, catalogue: Catalogue, report: MigrationReport) -> None:
        self.plan = ModelPlan()
        self._catalogue = catalogue
        self._report = report
        self._words = read_words()
        self._own: dict[tuple[str, str], str] = {}  # address and key → id of the provider that stands for them

    def read(self, content: Table) -> ModelPlan:
        """Return what the configuration becomes."""
        for number, entry in enumerate(content.get("model_list") or []):
            if isinstance(entry, dict) and isinstance(entry.get("litellm_params"), dict) and entry.get("model_name"):
                self._add(str(entry["model_name"]), entry["litellm_params"], _table(entry.get("model_info")))
            else:
                self._report.absent.append(f"model_list entry {number + 1}: it has no model_name or no litellm_params")
        self._add_group_aliases(_table(_table(content.get("router_settings")).get("model_group_alias")))
        for section in SECTIONS:
            self._tell_settings(section, _table(content.get(section)))
        for name in sorted(set(content) - {"model_list", *SECTIONS}):
            self._report.absent.append(f"{name}: this section is not read")
        return self.plan

    def _add(self, name: str, params: Table, info: Table) -> None:
        model = str(params.get("model", ""))
        prefix, slash, rest = model.partition("/")
        if not slash:
            prefix, rest = "openai", model
        first, _, further = rest.partition("/")
        if first in self._words.routes and further:
            rest = further
        address = str(params.get("api_base") or params.get("base_url") or "")
        provider = self._words.providers.get(prefix, "")
        if "*" in model or "*" in name:
            self._tell_wildcard(name, prefix, provider)
        elif address and not _is_reference(address) and prefix in self._words.compatible:
            self._add_own(name, rest, address, params, info)
        elif provider and self._catalogue.provider(provider) is not None:
            self._add_known(name, provider, rest, address, params)
        else:
            self._report.absent.append(f"{name}: no provider here serves {model}")
        for param in sorted(set(params) - self._words.taken):
            note = self._words.notes.get(param)
            if note:
                self._report.todo.append(f"litellm_params.{param}: {note}")
            else:
                self._report.absent.append(f"{name}: litellm_params.{param}")

    def _tell_wildcard(self, name: str, prefix: str, provider: str) -> None:
        if provider:
            text = f"{name}: every model of {provider} can be called as {provider}/<model>"
            self._report.replaced.append(text if prefix == provider else f"{text}, not as {prefix}/<model>")
        else:
            self._report.absent.append(f"{name}: no provider here serves {prefix}/*")

    def _add_known(self, name: str, provider: str, external_id: str, address: str, params: Table) -> None:
        """Add a deployment at a provider of the catalogue."""
        table = self.plan.providers.setdefault(provider, {})
        self._add_credential(table, provider, params.get("api_key"))
        if address:
            url = _reference(address) if _is_reference(address) else address
            if table.setdefault("base_url", url) != url:
                self._report.todo.append(f"{name}: {provider} has one base_url here; {address} was left out")
        model = self._find(provider, external_id)
        if model is None:
            self._report.todo.append(
                f"{name}: the catalogue does not list {external_id} at {provider}; callers name "
                f"{provider}/{external_id}, or add a mapping with its price (docs/catalogue.md)"
            )
            self._name(name, "")
            return
        self._name(name, model.id)
        if "input_cost_per_token" in params:
            self._report.todo.append(f"{name}: the price of the catalogue holds, not input_cost_per_token")

    def _find(self, provider: str, external_id: str) -> Model | None:
        """Return the model that a provider serves under its own id, with or without region, maker, date and version."""
        bare = ENDS.sub("", REGION.sub("", external_id))
        for text in filter(
            None, dict.fromkeys((external_id, REGION.sub("", external_id), bare, bare.partition(".")[2]))
        ):
            mapping = self._catalogue.served_as(provider, text)
            model = self._catalogue.find(text if mapping is None else mapping.model)
            if model is not None and any(one.provider == provider for one in model.mappings):
                return model
        return None

    def _add_own(self, name: str, external_id: str, address: str, params: Table, info: Table) -> None:
        """Add a deployment behind an address of the operator's own: a provider in OpenAI's format."""
        known = self._catalogue.find(name)
        ident = known.id if known is not None else _slug(name)
        key = str(params.get("api_key") or "")
        provider = self._own.get((address, key)) or self._name_provider(address)
        table = self.plan.providers.setdefault(provider, {"name": provider, "protocol": "openai", "address": address})
        if (address, key) not in self._own:
            self._own[address, key] = provider
            table["quirks"] = ["compatible"]
            self._add_credential(table, provider, params.get("api_key"))
            if "api_key" not in table:
                table["key_required"] = False
        if any(row["model"] == ident for row in table.get("mappings", ())):
            self._report.todo.append(f"{name}: two deployments at {address}; one is kept")
            return
        table.setdefault("mappings", []).append(self._mapping(name, ident, external_id, params, info))
        if known is None:
            self.plan.models[ident] = {"id": ident, "name": name, "family": "own"}
        self._name(name, ident)

    def _mapping(self, name: str, ident: str, external_id: str, params: Table, info: Table) -> Table:
        prices = {
            kind: _price(params.get(field_name, info.get(field_name)))
            for kind, field_name in (("prompt", "input_cost_per_token"), ("completion", "output_cost_per_token"))
        }
        if None in prices.values():
            self._report.todo.append(f"{name}: it has no price in the configuration and is free here; set `prices`")
        row: Table = {"model": ident, "external_id": external_id}
        operation = MODES.get(str(info.get("mode", "")))
        if operation:
            row["operations"] = [operation]
        else:
            row["tools"] = bool(info.get("supports_function_calling", True))
            row["vision"] = bool(info.get("supports_vision", False))
        for kind, names in SIZES:
            size = next((info[one] for one in names if isinstance(info.get(one), int) and info[one] > 0), 0)
            if size:
                row[kind] = size
        return row | {"prices": {kind: price or FREE for kind, price in prices.items()}}

    def _add_credential(self, table: Table, provider: str, key: Any) -> None:
        if not key or not isinstance(key, str):
            return
        reference = _reference(key)
        if not reference:
            path = f"litellm-keys/{provider}"
            number = sum(name.startswith(path) for name in self.plan.secrets)
            found = next(
                (name for name, text in self.plan.secrets.items() if text == key and name.startswith(path)), ""
            )
            path = found or (f"{path}-{number + 1}" if number else path)
            self.plan.secrets[path] = key
            reference = f"file:{path}"
        references = table.setdefault("api_key", [])
        if reference not in references:
            references.append(reference)

    def _name(self, name: str, ident: str) -> None:
        """Decide what a model name of the callers means here: `ident`, or nothing."""
        if not ident:
            self.plan.names.setdefault(name, "")
            return
        meant = self.plan.names.get(name)
        if meant and meant != ident:
            self._report.todo.append(
                f"{name}: it stood for different models ({meant} and {ident}); it means {meant}. Callers may send "
                "several models (docs/routing.md#several-models)"
            )
            return
        self.plan.names[name] = ident
        known = self._catalogue.find(name)
        if ident == name or (known is not None and known.id == ident):
            self._report.taken.append(f"model {name}")
        elif known is not None:
            self._report.todo.append(f"{name}: this name means {known.id} here; callers of {ident} name {ident}")
        else:
            self.plan.aliases[name] = ident
            self._report.taken.append(f"model {name}, as an alias of {ident}")

    def _add_group_aliases(self, aliases: Table) -> None:
        for name, target in aliases.items():
            if isinstance(target, dict):
                target = target.get("model", "")
            known = self._catalogue.find(str(target))
            ident = self.plan.names.get(str(target)) or (known.id if known is not None else "")
            if ident:
                self._name(str(name), ident)
            else:
                self._report.absent.append(f"model_group_alias {name}: {target} is not among the models")

    def _tell_settings(self, section: str, given: Table) -> None:
        words = self._words.settings[section]
        for name in given:
            text = words.get(name)
            if text:
                self._report.replaced.append(f"{section}.{name}: {text}")
            else:
                self._report.absent.append(f"{section}.{name}")

    def _name_provider(self, address: str) -> str:
        host = urlsplit(address).netloc.rpartition("@")[2]
        base = _slug(host) or "own"
        taken = {*self._catalogue.providers, *self.plan.providers}
        return next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)


def write_toml(plan: ModelPlan) -> str:
    """Return the part of gateway.toml for a plan."""
    lines = ["# Written by ./manage migrate litellm. Merge it into gateway.toml; paths are relative to that file."]
    for ident, table in plan.providers.items():
        rows = table.get("mappings", [])
        lines += ["", f"[providers.{_quote(ident)}]", *_pairs(table, skip=("mappings",))]
        for row in rows:
            lines += ["", f"[[providers.{_quote(ident)}.mappings]]", *_pairs(row)]
    for model in plan.models.values():
        lines += ["", "[[models]]", *_pairs(model)]
    if plan.aliases:
        lines += ["", "[aliases]", *(f"{_quote(name)} = {_quote(ident)}" for name, ident in plan.aliases.items())]
    return "\n".join(lines) + "\n"


def _pairs(table: Mapping[str, Any], skip: Iterable[str] = ()) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items() if name not in skip]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value) if isinstance(value, int) else _quote(str(value))


def _quote(text: str) -> str:
    """Return a TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(one if one >= " " and one != "\x7f" else f"\\u{ord(one):04x}" for one in escaped) + '"'


def _slug(text: str) -> str:
    return NOT_IN_ID.sub("-", text.lower()).strip("-.")[:60]


def _is_reference(text: str) -> bool:
    return text.startswith(ENVIRONMENT)


def _reference(text: str) -> str:
    """Return a reference of gateway.toml for one to a variable; "" for a key itself."""
    return f"env:{text.removeprefix(ENVIRONMENT)}" if _is_reference(text) else ""


def _price(value: Any) -> str | None:
    """Return a price per token as a decimal; None where none is given."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = read_decimal(str(value))
    except ValueError:
        return None
    if not 0 <= amount < 1:
        return None
    return f"{amount:f}" if amount else FREE


def _table(value: Any) -> Table:
    return value if isinstance(value, dict) else {}
