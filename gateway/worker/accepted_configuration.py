"""What the master checked before it lets a worker boot: the settings and the catalogue in force, handed on by the fork.

The master is the only one that checks; a worker takes what its master accepted, whatever has become of the files since.
A process without a master (an operator's command, a test) reads the files itself.
"""

import dataclasses
import logging
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from gateway.catalogue import last_good, loader
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.environment_credentials import address_problem, variable_of
from gateway.catalogue.loader import CatalogueError
from gateway.configuration import settings
from gateway.configuration.file import BASE_URL, variable
from gateway.configuration.lines import TomlPlace
from gateway.configuration.names import near
from gateway.configuration.setting_sources import describe_origin
from gateway.configuration.settings import Settings, SettingsError
from gateway.worker import extensions

log = logging.getLogger(__name__)

NOTE_BYTES = 4096
LENGTH = struct.Struct("<I")
MOST_NAMED = 3  # mistakes that one line names
# What only a restart changes: workers of both kinds would serve side by side for a while.
FIXED = (("server", "host"), ("server", "port"), ("database", "url"), ("database", "data_dir"))


@dataclass(frozen=True, slots=True)
class Accepted:
    """`since` is "" where the files are in force; else the catalogue is the copy that was kept at that time (ISO 8601),
    for `problems` were found in its files."""

    settings: Settings
    catalogue: Catalogue
    since: str = ""
    problems: tuple[str, ...] = ()


class Note:
    """A line that the master writes and every worker reads, of those too that were forked before."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, NOTE_BYTES)

    def write(self, text: str) -> None:
        data = text.encode()[: NOTE_BYTES - LENGTH.size]
        self._memory[: LENGTH.size + len(data)] = LENGTH.pack(len(data)) + data

    def read(self) -> str:
        (length,) = LENGTH.unpack_from(self._memory)
        return self._memory[LENGTH.size : LENGTH.size + length].decode(errors="replace")


_current: list[Accepted] = []
# Why not all that the files say is in force; "" while it is.
refusal = Note()


def current() -> Accepted | None:
    """What the master accepted; None in a process without one."""
    if _current:
        return _current[0]
    return None


def check() -> Accepted:
    """The configuration as the files and the environment have it now, nothing changed by asking. SettingsError and
    CatalogueError tell all that is wrong with it, the latter only when no earlier catalogue was kept that can be served
    instead."""
    chosen = _read_settings()
    try:
        return Accepted(chosen, _load(chosen))
    except CatalogueError as error:
        found = last_good.find(Path(chosen.database.data_dir), sandbox=chosen.catalogue.sandbox)
        if found is None:
            raise
        return Accepted(chosen, found.catalogue, found.since, tuple(str(error).splitlines()))


def check_files() -> None:
    """SettingsError or CatalogueError when a reload would be refused now."""
    _load(_read_settings())


def find_problems() -> list[str]:
    """All that is wrong with settings, extensions, variables and catalogue, one line each: no mistake hides another."""
    chosen, problems = settings.examine()
    if chosen is None:
        return problems
    for name in chosen.server.extensions:
        try:
            extensions.install([name])
        except SettingsError as error:
            problems.append(str(error))
    catalogue, more = loader.examine(loader.sources_of(chosen))
    return [*problems, *more, *_strange_choices(chosen, catalogue), *_bad_addresses(chosen, catalogue)]


def begin() -> Accepted:
    """Take what `check` gives, at a start; its errors pass."""
    accepted = check()
    if accepted.problems:
        refusal.write(f"the catalogue of {accepted.since} is in force: {count_of(accepted.problems)} in its files")
    else:
        _keep(accepted)
    _current[:] = [accepted]
    return accepted


def renew() -> list[str]:
    """Check the configuration again and take it, for workers that are forked from now on. Returns what of it waits for
    a restart. SettingsError and CatalogueError: everything stays as it is, and `refusal` says so."""
    before = _current[0]
    try:
        chosen = _read_settings()
        accepted = Accepted(chosen, _load(chosen))
    except SettingsError as error:
        refuse(error)
        raise
    waiting = [one for one in FIXED if _value(chosen, *one) != _value(before.settings, *one)]
    for section, key in waiting:
        kept_section = dataclasses.replace(
            getattr(accepted.settings, section), **{key: _value(before.settings, section, key)}
        )
        accepted = dataclasses.replace(
            accepted, settings=dataclasses.replace(accepted.settings, **{section: kept_section})
        )
    _keep(accepted)
    _current[:] = [accepted]
    refusal.write("")
    return [f"{section}.{key}" for section, key in waiting]


def refuse(error: Exception) -> None:
    """Have every worker say that a change is not in force."""
    if isinstance(error, CatalogueError):
        what = "the catalogue"
    else:
        what = "the configuration"
    refusal.write(f"a change of {what} was refused, what was before is in force: {count_of(str(error).splitlines())}")


def fingerprint(chosen: Settings) -> tuple[tuple[str, int, int], ...]:
    """Changes when a file of the operator or of the catalogue does; cheap."""
    folders = (loader.FOLDER, *([Path(chosen.catalogue.path)] if chosen.catalogue.path else []))
    paths = [path for folder in folders for path in sorted((*folder.glob("*.toml"), *folder.glob("*/*.toml")))]
    found = []
    for path in (*paths, *([Path(chosen.file.path)] if chosen.file.path else [])):
        try:
            state = path.stat()
        except OSError:
            continue
        found.append((str(path), state.st_mtime_ns, state.st_size))
    return tuple(found)


def count_of(problems: list[str] | tuple[str, ...]) -> str:
    if len(problems) > 1:
        return f"{len(problems)} mistakes"
    return "a mistake"


def in_one_line(problems: list[str] | tuple[str, ...]) -> str:
    """The first few problems, and how many more there are."""
    more = len(problems) - MOST_NAMED
    return "; ".join(problems[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _read_settings() -> Settings:
    """SettingsError tells with what is wrong in the settings what is wrong elsewhere too."""
    chosen, problems = settings.examine()
    if chosen is None or problems:
        raise SettingsError("\n".join(find_problems()))
    return chosen


def _load(chosen: Settings) -> Catalogue:
    extensions.install(chosen.server.extensions)
    catalogue, problems = loader.examine(loader.sources_of(chosen))
    strange = [*_strange_choices(chosen, catalogue), *_bad_addresses(chosen, catalogue)]
    if problems:
        raise CatalogueError("\n".join([*problems, *strange]))
    if strange:
        raise SettingsError("\n".join(strange))
    return catalogue


def _strange_choices(chosen: Settings, catalogue: Catalogue) -> list[str]:
    """Choices that do not fit each other or the catalogue, one line each."""
    mail = chosen.mail
    if mail.host and not (mail.sender and chosen.server.public_url):
        return ["[mail] host: e-mail needs [mail] sender, and [server] public_url for the links in it"]
    if mail.host and mail.username and mail.security == "none":
        return ["[mail] security: a password is not sent unencrypted; choose starttls or tls"]
    if chosen.origins.get(("catalogue", "auto_models"), "default") == "default":
        return []  # of the models that come along some may have been removed
    origin = describe_origin(chosen.origins, chosen.file, "catalogue", "auto_models")
    return [
        f"[catalogue] auto_models: there is no model {name}{near(name, catalogue.models)}{origin}"
        for name in chosen.catalogue.auto_models
        if catalogue.find(name) is None
    ]


def _bad_addresses(chosen: Settings, catalogue: Catalogue) -> list[str]:
    """Addresses of providers that can be none, by the variables that name them, one line each."""
    found = []
    for provider in catalogue.providers.values():
        problem = address_problem(provider, chosen.environment)
        if not problem:
            continue
        origin = ""
        written = variable(provider.id, BASE_URL)
        if chosen.environment.get(written) and not chosen.environment.get(variable_of(provider.id, "BASE_URL")):
            place = TomlPlace(Path(chosen.file.path).name, "", chosen.file.lines, f"providers.{provider.id}")
            origin = f" (from {place.at(BASE_URL)})"
        found.append(problem + origin)
    return found


def _keep(accepted: Accepted) -> None:
    """A full disk is no reason not to serve."""
    chosen = accepted.settings
    try:
        last_good.keep(Path(chosen.database.data_dir), loader.sources_of(chosen), accepted.catalogue.version)
    except OSError as error:
        log.warning("no copy of the catalogue could be kept for a later start: %s", error)


def _value(chosen: Settings, section: str, key: str) -> object:
    return getattr(getattr(chosen, section), key)
