"""The settings of agents in `client_settings.toml`, which the console and docs/clients.md show too."""

import functools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

FILE = "client_settings.toml"
OPTIONAL = ("model", "context")
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of one client, with placeholders. `document` is its settings file, empty without one; `reporting`
    and `reporting_document` make it report to the gateway, and are empty for a client that cannot."""

    environment: Mapping[str, str]
    command: Sequence[str]
    document: Mapping[str, Any]
    reporting: Mapping[str, str]
    reporting_document: Mapping[str, Any]

    def filled_environment(self, values: Values, telemetry: bool = False) -> dict[str, str]:
        """Return the variables with values; those of a model that is not chosen are left out."""
        variables = {**self.environment, **self.reporting} if telemetry else self.environment
        return {name: fill(text, values) for name, text in variables.items() if is_known(text, values)}

    def filled_arguments(self, values: Values) -> list[str]:
        """Return the arguments behind the program's name."""
        return [fill(text, values) for text in self.command[1:] if is_known(text, values)]

    def filled_document(self, values: Values, telemetry: bool = False) -> dict[str, Any]:
        """Return the content of the settings file; members of a model that is not chosen are left out."""
        document = {**self.document, **self.reporting_document} if telemetry else self.document
        filled: dict[str, Any] = _fill_value(document, values)
        return filled


@functools.cache
def read_client_settings() -> dict[str, ClientSettings]:
    """Return the settings of every client that `launch` can start, by its id."""
    text = resources.files("llmgateway_cli").joinpath(FILE).read_text("utf-8")
    clients = tomllib.loads(text)["clients"]
    return {client["id"]: _read_client(client) for client in clients if client.get("launched")}


def _read_client(client: Mapping[str, Any]) -> ClientSettings:
    document: Mapping[str, Any] = {}
    for file in client.get("files", ()):
        document = tomllib.loads(file["text"]) if file["format"] == "toml" else json.loads(file["text"])
    telemetry = client.get("telemetry", {})
    return ClientSettings(
        client.get("environment", {}),
        client["command"],
        document,
        telemetry.get("environment", {}),
        tomllib.loads(telemetry.get("text", "")),
    )


def is_known(text: str, values: Values) -> bool:
    """Return whether a text has no placeholder for a model that is not chosen, or for a fact about it."""
    return all(name not in OPTIONAL or values[name] for name in PLACEHOLDER.findall(text))


def fill(text: str, values: Values) -> str:
    """Return a text with values instead of placeholders."""
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _fill_value(value: Any, values: Values) -> Any:
    if isinstance(value, dict):
        members = value.items()
        return {
            fill(name, values): _fill_value(member, values) for name, member in members if _has(name, member, values)
        }
    if isinstance(value, list):
        return [_fill_value(member, values) for member in value if _has("", member, values)]
    return fill(value, values) if isinstance(value, str) else value


def _has(name: str, member: Any, values: Values) -> bool:
    return is_known(name, values) and (not isinstance(member, str) or is_known(member, values))


def dotted(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the members of a document with their paths: `a.b.c` and a value."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
