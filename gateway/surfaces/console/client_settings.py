"""The settings of clients as the steps that set them up: files, commands and values with this gateway's address.

Their source is the file that the command-line client reads too.
"""

import functools
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct, convert

from gateway.configuration.settings import ROOT

SOURCE = ROOT / "cli" / "llmgateway_cli" / "client_settings.toml"
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
OPTIONAL = ("model", "context")  # settings with their placeholders are left out without a value
AUTO = "auto"
# A model's name is written into commands and files, so only letters that mean nothing in any of them may occur.
MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]*")

Values = Mapping[str, str]


class SettingsFile(Struct, frozen=True):
    """A file that a client reads. `~` in its path is the user's home; other paths are in the project's folder."""

    path: str
    format: Literal["python", "typescript", "toml", "json", "yaml"]
    text: str


class TypedSetting(Struct, frozen=True):
    """A value that is typed into a client's own settings."""

    name: str
    value: str


class TelemetrySettings(Struct, frozen=True):
    """The settings with which an agent reports to the gateway: variables, and a text for its first file."""

    environment: dict[str, str] = {}
    text: str = ""


class ClientSetup(Struct, frozen=True):
    """A client with its settings, which contain placeholders; the source explains the members."""

    id: str
    name: str
    group: str
    test: str
    files: tuple[SettingsFile, ...] = ()
    install: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    command: tuple[str, ...] = ()
    shell: str = ""
    place: str = ""
    fields: tuple[TypedSetting, ...] = ()
    note: str = ""
    launched: bool = False
    chooses_model: bool = False
    telemetry: TelemetrySettings | None = None


class SetupStep(Struct, frozen=True):
    """A text to copy. `kind` is `shell` for commands in a terminal, `value` for a value to type, or the format of a
    file; `place` is where it belongs, "" for a terminal."""

    kind: str
    place: str
    text: str


class ShownClient(Struct, frozen=True):
    """A client and the steps that set it up."""

    id: str
    name: str
    group: str
    test: str
    note: str
    launch: str
    steps: tuple[SetupStep, ...]


@functools.cache
def load_clients() -> tuple[ClientSetup, ...]:
    """Return all clients in the order of the page."""
    return convert(tomllib.loads(SOURCE.read_text("utf-8"))["clients"], tuple[ClientSetup, ...])


def group_clients(base_url: str, token: str, model: str) -> list[tuple[str, list[ShownClient]]]:
    """Return the groups with their clients, set up for this address, token and model."""
    shown = [show_client(client, base_url, token, model) for client in load_clients()]
    return [(name, list(members)) for name, members in groupby(shown, attrgetter("group"))]


def show_client(client: ClientSetup, base_url: str, token: str, model: str) -> ShownClient:
    """Return a client with its steps. A name that no model can have is replaced by `auto`."""
    chosen = model if MODEL.fullmatch(model) else AUTO
    if client.chooses_model and chosen == AUTO:
        chosen = ""
    values = values_of(base_url, token, chosen)
    launch = f"llmgateway launch {client.id}" if client.launched else ""
    return ShownClient(
        client.id, client.name, client.group, client.test, client.note, launch, tuple(_steps(client, values))
    )


class ShownTelemetry(Struct, frozen=True):
    """An agent and the steps by which it reports."""

    name: str
    steps: tuple[SetupStep, ...]


def show_telemetry(base_url: str, token: str) -> list[ShownTelemetry]:
    """Return the agents whose telemetry the gateway reads, with their settings."""
    values = values_of(base_url, token, "")
    shown = []
    for client in load_clients():
        if client.telemetry is None:
            continue
        steps = []
        if client.telemetry.text:
            file = client.files[0]
            steps.append(SetupStep(file.format, file.path, fill(client.telemetry.text.strip(), values)))
        lines = [f"export {name}={_quote(fill(text, values))}" for name, text in client.telemetry.environment.items()]
        steps.append(SetupStep("shell", "", "\n".join(lines)))
        shown.append(ShownTelemetry(client.name, tuple(steps)))
    return shown


def values_of(base_url: str, token: str, model: str) -> Values:
    """Return the values of the placeholders."""
    parts = urlsplit(base_url)
    path = parts.path.strip("/")
    return {
        "address": base_url,
        "origin": f"{parts.scheme}://{parts.netloc}",
        "base_path": f"{path}/" if path else "",
        "key": token,
        "model": model,
        "context": "",
    }


def _steps(client: ClientSetup, values: Values) -> Iterator[SetupStep]:
    for file in client.files:
        yield SetupStep(file.format, file.path, fill(file.text.strip(), values))
    for field in client.fields:
        yield SetupStep("value", f"{client.place}: {field.name}", fill(field.value, values))
    if client.shell:
        yield SetupStep("shell", "", fill(client.shell.strip(), values))
    lines = [" ".join(client.install)] if client.install else []
    lines += [
        f"export {name}={_quote(fill(text, values))}"
        for name, text in client.environment.items()
        if _known(text, values)
    ]
    if client.command:
        lines.append(" ".join(_quote(fill(word, values)) for word in client.command))
    if lines:
        yield SetupStep("shell", "", "\n".join(lines))


def _quote(value: str) -> str:
    """Return a word of a command. The placeholder of a key needs no quotes, and is easier to replace without them."""
    if value.isprintable() and re.fullmatch(r"[\w.,:/@%+=…-]*", value):
        return value
    return shlex.quote(value)


def _known(text: str, values: Values) -> bool:
    return all(name not in OPTIONAL or values[name] for name in PLACEHOLDER.findall(text))


def fill(text: str, values: Values) -> str:
    """Return a text with values instead of its placeholders."""
    return PLACEHOLDER.sub(lambda match: values[match[1]], text)
