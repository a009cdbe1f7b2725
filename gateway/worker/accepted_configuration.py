"""The configuration that the master accepted: checked settings and catalogue, inherited by workers at the fork.

Only the master checks; a worker uses what its master accepted, regardless of later changes to the files. A process
without a master (an operator's command, a test) reads the files itself.
"""

import dataclasses
import logging
import mmap
import struct
from pathlib import Path

from msgspec import Struct, structs

from gateway.catalogue import last_good, loader, provider_routes
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.environment_credentials import address_problem, identity_problem, variable_of
from gateway.catalogue.loader import CatalogueError
from gateway.configuration import settings
from gateway.configuration.file import BASE_URL, SettingsError, TomlPlace, variable
from gateway.configuration.setting_checks import suggest_similar
from gateway.configuration.setting_sources import describe_origin
from gateway.configuration.settings import Settings
from gateway.runtime.lazy_import import LazyImport
from gateway.worker import extensions

# It imports peewee, which loads every driver unless gunicorn.conf.py has left it out by then.
default_limits = LazyImport("gateway.admin.default_limits")

log = logging.getLogger(__name__)

NOTE_BYTES = 4096
LENGTH = struct.Struct("<I")
MAX_LISTED = 3  # problems that one log line lists
# These settings change only at a restart: otherwise workers with both values would run side by side for a while.
RESTART_SETTINGS = (("server", "host"), ("server", "port"), ("database", "url"), ("database", "data_dir"))


class Accepted(Struct, frozen=True):
    """The accepted configuration.

    `since` is "" if the files are in force; otherwise the catalogue is the copy that was kept at that time (ISO 8601),
    because `problems` were found in its files.
    """

    settings: Settings
    catalogue: Catalogue
    since: str = ""
    problems: tuple[str, ...] = ()


class Note:
    """A line of text in shared memory that the master writes and every worker reads, including those forked before."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, NOTE_BYTES)

    def write(self, text: str) -> None:
        data = text.encode()[: NOTE_BYTES - LENGTH.size]
        self._memory[: LENGTH.size + len(data)] = LENGTH.pack(len(data)) + data

    def read(self) -> str:
        (length,) = LENGTH.unpack_from(self._memory)
        return self._memory[LENGTH.size : LENGTH.size + length].decode(errors="replace")


_current: list[Accepted] = []
# The reason why not all changes in the files are in force; "" if they are.
refusal = Note()


def current() -> Accepted | None:
    """Return what the master accepted; None in a process without a master."""
    if _current:
        return _current[0]
    return None


def check() -> Accepted:
    """Read the current configuration from the files and the environment, without side effects.

    SettingsError and CatalogueError list all problems; CatalogueError is raised only if no earlier catalogue was kept
    that can be used instead.
    """
    chosen = _read_settings()
    try:
        return Accepted(chosen, _load(chosen))
    except CatalogueError as error:
        kept = last_good.find(Path(chosen.database.data_dir), sandbox=chosen.catalogue.sandbox)
        if kept is None:
            raise
        return Accepted(chosen, kept.catalogue, kept.since, tuple(str(error).splitlines()))


def check_files() -> None:
    """Raise SettingsError or CatalogueError if a reload would be rejected now."""
    _load(_read_settings())


def find_problems() -> list[str]:
    """Return all problems of settings, extensions, variables and catalogue, one line each."""
    chosen, problems = settings.examine()
    if chosen is None:
        return problems
    for name in chosen.server.extensions:
        try:
            extensions.install([name])
        except SettingsError as error:
            problems.append(str(error))
    catalogue, more = loader.examine(loader.sources_of(chosen))
    return [*problems, *more, *_conflicting_choices(chosen, catalogue), *_bad_addresses(chosen, catalogue)]


def begin() -> Accepted:
    """Accept the configuration from `check` at a start; its errors are raised."""
    accepted = check()
    if accepted.problems:
        refusal.write(f"the catalogue of {accepted.since} is in force: {count_of(accepted.problems)} in its files")
    else:
        _keep(accepted)
    _current[:] = [accepted]
    return accepted


def renew() -> list[str]:
    """Check the configuration again and accept it for workers that are forked from now on.

    Return the settings that take effect only at a restart. On SettingsError or CatalogueError everything stays as it
    is, and `refusal` says so.
    """
    before = _current[0]
    try:
        chosen = _read_settings()
        accepted = Accepted(chosen, _load(chosen))
    except SettingsError as error:
        refuse(error)
        raise
    waiting = [
        (section, key)
        for section, key in RESTART_SETTINGS
        if _value(chosen, section, key) != _value(before.settings, section, key)
    ]
    for section, key in waiting:
        kept_section = dataclasses.replace(
            getattr(accepted.settings, section), **{key: _value(before.settings, section, key)}
        )
        accepted = structs.replace(accepted, settings=dataclasses.replace(accepted.settings, **{section: kept_section}))
    _keep(accepted)
    _current[:] = [accepted]
    refusal.write("")
    return [f"{section}.{key}" for section, key in waiting]


def refuse(error: Exception) -> None:
    """Report to every worker that a change was rejected."""
    changed = "the catalogue" if isinstance(error, CatalogueError) else "the configuration"
    refusal.write(
        f"a change of {changed} was refused, the previous version stays in force: {count_of(str(error).splitlines())}"
    )


def fingerprint(chosen: Settings) -> tuple[tuple[str, int, int], ...]:
    """Return a value that changes with the files of the operator or of the catalogue; cheap."""
    folders = (loader.FOLDER, *([Path(chosen.catalogue.path)] if chosen.catalogue.path else []))
    paths = [path for folder in folders for path in sorted((*folder.glob("*.toml"), *folder.glob("*/*.toml")))]
    states = []
    for path in (*paths, *([Path(chosen.file.path)] if chosen.file.path else [])):
        try:
            state = path.stat()
        except OSError:
            continue
        states.append((str(path), state.st_mtime_ns, state.st_size))
    return tuple(states)


def count_of(problems: list[str] | tuple[str, ...]) -> str:
    if len(problems) > 1:
        return f"{len(problems)} mistakes"
    return "a mistake"


def in_one_line(problems: list[str] | tuple[str, ...]) -> str:
    """Join the first few problems and the number of the others."""
    more = len(problems) - MAX_LISTED
    return "; ".join(problems[:MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _read_settings() -> Settings:
    """Read the settings. SettingsError lists all problems, including those outside of the settings."""
    chosen, problems = settings.examine()
    if chosen is None or problems:
        raise SettingsError("\n".join(find_problems()))
    return chosen


def _load(chosen: Settings) -> Catalogue:
    extensions.install(chosen.server.extensions)
    catalogue, problems = loader.examine(loader.sources_of(chosen))
    conflicts = [*_conflicting_choices(chosen, catalogue), *_bad_addresses(chosen, catalogue)]
    if problems:
        raise CatalogueError("\n".join([*problems, *conflicts]))
    if conflicts:
        raise SettingsError("\n".join(conflicts))
    return catalogue


def _conflicting_choices(chosen: Settings, catalogue: Catalogue) -> list[str]:
    """Return settings that conflict with each other or with the catalogue, one line each."""
    mail = chosen.mail
    if mail.host and not (mail.sender and chosen.server.public_url):
        return ["[mail] host: e-mail needs [mail] sender, and [server] public_url for the links in it"]
    if mail.host and mail.username and mail.security == "none":
        return ["[mail] security: a password is not sent unencrypted; choose starttls or tls"]
    limits = chosen.organizations.limits
    if limits and (wrong := default_limits.find_limit_problems(limits)):
        origin = describe_origin(chosen.origins, chosen.file, "organizations", "limits")
        return [f"[organizations] limits: {problem}{origin}" for problem in wrong]
    if chosen.origins.get(("catalogue", "auto_models"), "default") == "default":
        return []  # the operator may have removed some of the default models from the catalogue
    origin = describe_origin(chosen.origins, chosen.file, "catalogue", "auto_models")
    return [
        f"[catalogue] auto_models: there is no model {name}{suggest_similar(name, catalogue.models)}{origin}"
        for name in chosen.catalogue.auto_models
        if catalogue.find(name) is None
    ]


def _bad_addresses(chosen: Settings, catalogue: Catalogue) -> list[str]:
    """Return invalid addresses, certificates and workload identities, with their variables, one line each."""
    problems = []
    ca_file = chosen.outgoing.ca_file
    if ca_file and (problem := provider_routes.certificates_problem([ca_file])):
        origin = describe_origin(chosen.origins, chosen.file, "outgoing", "ca_file")
        problems.append(f"[outgoing] ca_file: {problem}{origin}")
    for provider in catalogue.providers.values():
        problems += provider_routes.problems_of(provider, chosen.environment)
        if problem := identity_problem(provider, chosen.environment):
            problems.append(problem)
        problem = address_problem(provider, chosen.environment)
        if not problem:
            continue
        origin = ""
        written = variable(provider.id, BASE_URL)
        if chosen.environment.get(written) and not chosen.environment.get(variable_of(provider.id, "BASE_URL")):
            place = TomlPlace(Path(chosen.file.path).name, "", chosen.file.lines, f"providers.{provider.id}")
            origin = f" (from {place.at(BASE_URL)})"
        problems.append(problem + origin)
    return problems


def _keep(accepted: Accepted) -> None:
    """Keep a copy of the catalogue; a full disk must not prevent the start."""
    chosen = accepted.settings
    try:
        last_good.keep(Path(chosen.database.data_dir), loader.sources_of(chosen), accepted.catalogue.version)
    except OSError as error:
        log.warning("the catalogue could not be copied for a later start: %s", error)


def _value(chosen: Settings, section: str, key: str) -> object:
    return getattr(getattr(chosen, section), key)
