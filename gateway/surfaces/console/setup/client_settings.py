"""The settings of clients, which clients.toml lists."""

import functools
import tomllib
from importlib import resources
from itertools import groupby
from operator import attrgetter

from msgspec import Struct, convert
from msgspec.structs import replace


class ClientSettings(Struct, frozen=True):
    """A client with its settings. `test` names the API that it calls; `file` is "" for a command, `start` are commands
    after the file was written."""

    id: str
    name: str
    group: str
    test: str
    text: str
    file: str = ""
    start: str = ""
    note: str = ""


@functools.cache
def load_clients() -> tuple[ClientSettings, ...]:
    """Return the clients of clients.toml."""
    text = resources.files("gateway.surfaces.console.setup").joinpath("clients.toml").read_text("utf-8")
    return convert(tomllib.loads(text)["clients"], tuple[ClientSettings, ...])


def group_clients(base_url: str, token: str, model: str) -> list[tuple[str, list[ClientSettings]]]:
    """Return the groups with their clients; their texts have this address, this token and this model."""

    def fill(text: str) -> str:
        return text.strip().replace("BASE", base_url).replace("TOKEN", token).replace("MODEL", model)

    filled = [replace(client, text=fill(client.text), start=fill(client.start)) for client in load_clients()]
    return [(name, list(members)) for name, members in groupby(filled, attrgetter("group"))]
