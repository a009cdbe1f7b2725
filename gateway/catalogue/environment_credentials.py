"""Keys, base URL and settings of a provider from the environment, which is passed in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.catalogue.base_urls import fill_address, join_base, needed_settings, problem_of
from gateway.catalogue.entries import IDENTITIES, Provider
from gateway.configuration import file
from gateway.configuration.file import SettingsError, read_secret

# Recognition of a provider by the form of one of its keys.


def find_providers(providers: Iterable[Provider], token: str) -> list[Provider]:
    """Return the providers with a prefix that the key has. The longest prefix decides; several providers share short
    ones."""
    longest = 0
    found: list[Provider] = []
    for provider in providers:
        length = max((len(prefix) for prefix in provider.key_prefixes if token.startswith(prefix)), default=0)
        if length > longest:
            longest, found = length, []
        if length and length == longest:
            found.append(provider)
    return found


PREFIX = "LLM_"
WORKLOAD_IDENTITY = "workload-identity"  # in place of a key: tokens of the gateway's host


def variable_of(provider_id: str, suffix: str) -> str:
    """Return LLM_<ID>_<SUFFIX>: the id in capitals, "-" and "." as "_"."""
    return f"{PREFIX}{provider_id.upper().replace('-', '_').replace('.', '_')}_{suffix}"


def variables_of(provider_id: str, entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return every variable that is read for a provider, from its entries in the catalogue's layers."""
    suffixes = ("API_KEY", "BASE_URL", *(key.upper() for key in file.ROUTE_KEYS))
    names = {variable_of(provider_id, suffix) for suffix in suffixes}
    for entry in entries:
        for joined in entry.get("credential", ()):
            names |= {part.removesuffix("?") for part in joined.split(":")}
        for sources in entry.get("settings", {}).values():
            names |= set(sources.partition(" -> ")[0].partition("=")[0].split("|"))
    return names


def credentials_for(provider: Provider, environment: Mapping[str, str]) -> list[str]:
    """Return the platform's keys for `provider`, in the order in which they are tried; empty if it has none.

    LLM_<ID>_API_KEY comes first, then the entry's names, then the operator's file; the first one that is set applies.
    A comma-separated list is several keys, and NAME_FILE names a file that holds the value. A name of the form
    "A:B:C?" joins the values of several variables with colons, those with "?" only if set. WORKLOAD_IDENTITY is left
    out for a provider that has none. Raise SettingsError for a file that cannot be read.
    """
    keys = _written_keys(provider, environment)
    if provider.identity:
        return keys
    return [key for key in keys if key != WORKLOAD_IDENTITY]


def identity_problem(provider: Provider, environment: Mapping[str, str]) -> str:
    """Return why the configured workload identity of a provider cannot be used; "" without one or a problem."""
    if provider.identity:
        return ""
    try:
        keys = _written_keys(provider, environment)
    except SettingsError:
        return ""  # a file that cannot be read is a problem of the catalogue's own check
    if WORKLOAD_IDENTITY not in keys:
        return ""
    return f"{variable_of(provider.id, 'API_KEY')}: {provider.name} has no workload identity; set a key"


def _written_keys(provider: Provider, environment: Mapping[str, str]) -> list[str]:
    own = variable_of(provider.id, "API_KEY")
    written = file.variable(provider.id, file.API_KEY)
    for name in (own, *provider.credential, written):
        keys = _joined(name, environment) if ":" in name else _split(read_secret(environment, name))
        if keys:
            return keys
    return []


def base_url_for(provider: Provider, environment: Mapping[str, str]) -> str:
    """Return LLM_<ID>_BASE_URL, else that of the operator's file, else ""; the version path is optional
    (base_urls.join_base).
    """
    base_url = environment.get(variable_of(provider.id, "BASE_URL"), "").strip()
    return base_url or environment.get(file.variable(provider.id, file.BASE_URL), "").strip()


def address_problem(provider: Provider, environment: Mapping[str, str]) -> str:
    """Return why the configured address of the provider is invalid, with the variable's name; "" if it is valid or not
    configured.
    """
    base_url = base_url_for(provider, environment)
    if base_url and (problem := problem_of(base_url)):
        return f"{variable_of(provider.id, 'BASE_URL')}: {problem}"
    template = join_base(provider, base_url)
    settings = settings_for(provider, environment)
    for name, value in settings.items():
        others = dict.fromkeys(settings, "x")
        if value and (problem := problem_of(fill_address(template, others | {name: value}) or "https://x")):
            return f"{provider.settings[name].partition('=')[0].partition('|')[0]}: {problem}"
    return ""


def settings_for(provider: Provider, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the provider's settings (region, project …) by name, "" if the environment has none.

    An entry has the form "NAME|OTHER_NAME=default". A secret setting may be in NAME_FILE. "… -> word: value, …" maps
    the accepted words to values; another word gives "".
    """
    return {
        setting: _setting(sources, environment, environment.get(file.variable(provider.id, setting), ""))
        for setting, sources in provider.settings.items()
    }


def is_configured(provider: Provider, environment: Mapping[str, str]) -> bool:
    """Return whether the platform can use `provider`: it has a key, or it needs none and its address is known."""
    if credentials_for(provider, environment):
        return True
    return not provider.key_required and bool(
        provider.address or provider.protocol == "sandbox" or base_url_for(provider, environment)
    )


def missing_variables(provider: Provider, environment: Mapping[str, str]) -> str:
    """Return the missing variables of `provider`, e.g. "OPENAI_API_KEY (or LLM_OPENAI_API_KEY)"; "" if there are none.

    A vendor's usual name comes before the gateway's own.
    """
    missing = []
    if provider.key_required and not credentials_for(provider, environment):
        names = [_spelled(name) for name in provider.credential[:1]]
        own = variable_of(provider.id, "API_KEY")
        missing.append(f"{names[0]} (or {own})" if names else own)
    if provider.protocol != "sandbox" and not base_url_for(provider, environment):
        settings = settings_for(provider, environment)
        if WORKLOAD_IDENTITY in credentials_for(provider, environment):
            settings |= dict.fromkeys(IDENTITIES[provider.identity], "discovered")
        needed = [] if fill_address(provider.address, settings) else needed_settings(provider.address, settings)
        missing += [provider.settings[name].partition("=")[0].partition("|")[0] for name in needed]
        if not provider.address:
            missing.append(variable_of(provider.id, "BASE_URL"))
    return " and ".join(missing)


def _spelled(names: str) -> str:
    """Return the variables of a `credential`, without optional ones."""
    return " and ".join(name for name in names.split(":") if not name.endswith("?"))


def _setting(sources: str, environment: Mapping[str, str], written: str) -> str:
    sources, _, table = sources.partition(" -> ")
    names, _, default = sources.partition("=")
    values = (read_secret(environment, name).strip() for name in names.split("|"))
    value = next((value for value in values if value), written or default)
    if not table:
        return value
    words = dict(pair.split(": ", 1) for pair in table.split(", "))
    return words.get(value.lower(), "")


def _joined(names: str, environment: Mapping[str, str]) -> list[str]:
    values = []
    for name in names.split(":"):
        value = read_secret(environment, name.removesuffix("?")).strip()
        if value:
            values.append(value)
        elif not name.endswith("?"):
            return []
    return [":".join(values)]


def _split(text: str) -> list[str]:
    """Split a list of keys; the JSON of a service account is one key, whatever commas it contains."""
    if text.lstrip().startswith("{"):
        return [text.strip()]
    return [key.strip() for key in text.split(",") if key.strip()]
