"""`config`: check the configuration, and show all of it."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from gateway.admin.bootstrap import check_first_start
from gateway.catalogue import environment_credentials, loader, provider_routes
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Provider
from gateway.configuration import file, settings
from gateway.configuration.file import SettingsError
from gateway.configuration.settings import Settings
from gateway.metering.clickhouse import clickhouse_http
from gateway.operator.output import AS_JSON, is_json, print_findings
from gateway.secret_text import MASK, mask_address
from gateway.store.database_addresses import check_scheme
from gateway.store.installation_identity import check_secrets
from gateway.store.redis import check_url
from gateway.worker import accepted_configuration, extensions

# The effective configuration as lines: each value with its source; secrets are masked.

UNSET = "not set"


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a section, "" if it is unset or hidden, and its origin."""

    section: str
    key: str
    value: Any
    origin: str


def entries_of(sections: Mapping[str, Any], origins: Mapping[tuple[str, str], str]) -> Iterator[Entry]:
    """Yield every setting, in the order of the sections, with masked passwords in URLs."""
    for name, values in sections.items():
        for setting in dataclasses.fields(values):
            value = getattr(values, setting.name)
            if isinstance(value, str):
                value = mask_address(value)
            elif isinstance(value, tuple):
                value = [mask_address(item) if isinstance(item, str) else item for item in value]
            yield Entry(name, setting.name, value, origins.get((name, setting.name), "default"))


def secret_entry(
    section: str,
    key: str,
    names: Sequence[str],
    environment: Mapping[str, str],
    references: Mapping[str, str],
    file: str,
) -> Entry:
    """Return the entry of a secret from the first of `names` that is set: its origin and a mask, never its value.

    `references` are those of the `file`.
    """
    for name in names:
        reference = f"{file}: {references[name]}" if name in references else ""
        if environment.get(name):
            return Entry(section, key, MASK, reference or name)
        path = environment.get(f"{name}_FILE", "")
        if path:
            return Entry(section, key, MASK, reference or f"{name}_FILE: {path}")
    return Entry(section, key, "", UNSET)


WIDTH = 44
HEADERS = "headers"  # headers of a provider; a value may be a secret


@click.group()
def config() -> None:
    """The configuration: config/*.toml, gateway.toml, the environment; later ones win."""


@config.command()
@AS_JSON
@click.pass_context
def check(ctx: click.Context) -> None:
    """Print every mistake in settings, variables and catalogue; exit 1 when there is one."""
    problems = find_problems()
    print_findings(problems, "The configuration is valid.")
    ctx.exit(1 if problems else 0)


@config.command()
@AS_JSON
def show() -> None:
    """Print the whole configuration with the origin of each value; secrets are masked."""
    chosen = settings.load()
    extensions.install(chosen.server.extensions)
    entries = [*_settings_of(chosen), *_providers_of(chosen, loader.load_from(loader.sources_of(chosen)))]
    if is_json():
        click.echo(
            json.dumps(
                [{name: getattr(entry, name) for name in Entry.__slots__} for entry in entries], indent=2, default=str
            )
        )
        return
    click.echo(f"# {chosen.file.path or 'no ' + file.NAME}; GATEWAY_ENV {chosen.environment_name}")
    section = ""
    for entry in entries:
        if entry.section != section:
            section = entry.section
            click.echo(f"\n[{section}]")
        click.echo(f"{f'{entry.key} = {_write(entry.value)}':{WIDTH}} # {entry.origin}")


def find_problems() -> list[str]:
    """Return a line for each mistake that would prevent the gateway from starting or reloading."""
    problems = accepted_configuration.find_problems()
    chosen, _ = settings.examine()
    if chosen is None:
        return problems
    checks: list[Callable[[], object]] = [partial(check_url, chosen.redis), partial(check_scheme, chosen.database)]
    checks += [partial(chosen.secret, name) for name in settings.SECRETS.values()]
    checks.append(partial(clickhouse_http.check_address, chosen.analytics))
    checks += [partial(check_secrets, chosen), partial(check_first_start, chosen)]
    for check in checks:
        try:
            check()
        except SettingsError as error:
            problems += str(error).splitlines()
    return list(dict.fromkeys(problems))


def _settings_of(chosen: Settings) -> Iterator[Entry]:
    yield from entries_of({name: getattr(chosen, name) for name in settings.SECTIONS}, chosen.origins)
    for key, name in settings.SECRETS.items():
        yield secret_entry("secrets", key, [name], chosen.environment, chosen.file.references, file.NAME)


def _providers_of(chosen: Settings, catalogue: Catalogue) -> Iterator[Entry]:
    """Return the providers, models and aliases that the operator configures."""
    for provider in catalogue.providers.values():
        yield from (entry for entry in _provider(chosen, provider) if entry.value)
    for model in chosen.file.catalogue.get("models", ()):
        yield Entry("models", model["id"], model, file.NAME)
    for alias, name in chosen.file.catalogue.get("aliases", {}).items():
        yield Entry("aliases", alias, name, file.NAME)


def _provider(chosen: Settings, provider: Provider) -> Iterator[Entry]:
    section = f"providers.{provider.id}"
    env = chosen.environment
    parts = [part.removesuffix("?") for joined in provider.credential for part in joined.split(":")]
    names = [
        environment_credentials.variable_of(provider.id, "API_KEY"),
        *parts,
        file.variable(provider.id, file.API_KEY),
    ]
    for key, value in chosen.file.catalogue.get("providers", {}).get(provider.id, {}).items():
        yield Entry(section, key, dict.fromkeys(value, MASK) if key == HEADERS else value, file.NAME)
    yield secret_entry(section, file.API_KEY, names, env, chosen.file.references, file.NAME)
    own = environment_credentials.variable_of(provider.id, "BASE_URL")
    origin = own if env.get(own) else file.NAME
    yield Entry(section, file.BASE_URL, mask_address(environment_credentials.base_url_for(provider, env)), origin)
    routes = provider_routes.read_choices(provider.id, env)
    for name, ending in provider_routes.VARIABLES.items():
        variable = environment_credentials.variable_of(provider.id, ending)
        if env.get(variable, "").strip():
            yield Entry(section, name, mask_address(routes[name]) if name == file.PROXY else routes[name], variable)
    for name, value in environment_credentials.settings_for(provider, env).items():
        sources = provider.settings[name].partition(" -> ")[0].partition("=")[0].split("|")
        origin = next((variable for variable in sources if env.get(variable) or env.get(f"{variable}_FILE")), "")
        written = file.NAME if file.variable(provider.id, name) in env else ""
        if origin or written:
            secret = "key" in name or "secret" in name or "token" in name
            yield Entry(section, name, MASK if secret and value else value, origin or written)


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def choose(path: str) -> None:
    """Use this configuration file. Raises SettingsError if it does not exist."""
    if not Path(path).is_file():
        raise SettingsError(file.missing_file(Path(path).absolute()))
    settings.choose_file(path)
