"""What the environment says of a provider: its keys, its base URL and its settings. The environment is passed in."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.catalogue.base_urls import fill_address, join_base, needed_settings, problem_of
from gateway.catalogue.entries import Provider
from gateway.configuration import file
from gateway.configuration.settings import read_secret

PREFIX = "LLM_"


def variable_of(provider_id: str, suffix: str) -> str:
    """LLM_<ID>_<SUFFIX>: the id in capitals, "-" and "." as "_"."""
    return f"{PREFIX}{provider_id.upper().replace('-', '_').replace('.', '_')}_{suffix}"


def variables_of(provider_id: str, entries: Sequence[Mapping[str, Any]]) -> set[str]:
    """Every variable that is read for a provider, from what the catalogue's layers say of it."""
    names = {variable_of(provider_id, suffix) for suffix in ("API_KEY", "BASE_URL")}
    for entry in entries:
        for joined in entry.get("credential", ()):
            names |= {part.removesuffix("?") for part in joined.split(":")}
        for sources in entry.get("settings", {}).values():
            names |= set(sources.partition(" -> ")[0].partition("=")[0].split("|"))
    return names


def credentials_for(provider: Provider, environment: Mapping[str, str]) -> list[str]:
    """The platform's keys for `provider`, in the order in which they are tried; empty when it has none.

    LLM_<ID>_API_KEY first, then the entry's names, then the operator's file; the first that is set counts. A comma
    list is several keys, and NAME_FILE names a file that holds the value. A name of the form "A:B:C?" joins the values
    of several variables with colons, those with "?" only when set. Raises SettingsError for a file that cannot be read.
    """
    own = variable_of(provider.id, "API_KEY")
    written = file.variable(provider.id, file.API_KEY)
    for name in (own, *provider.credential, written):
        if ":" in name:
            keys = _joined(name, environment)
        else:
            keys = _split(read_secret(environment, name))
        if keys:
            return keys
    return []


def base_url_for(provider: Provider, environment: Mapping[str, str]) -> str:
    """LLM_<ID>_BASE_URL, else that of the operator's file, else ""; with or without the version path
    (addresses.join_base)."""
    base_url = environment.get(variable_of(provider.id, "BASE_URL"), "").strip()
    return base_url or environment.get(file.variable(provider.id, file.BASE_URL), "").strip()


def address_problem(provider: Provider, environment: Mapping[str, str]) -> str:
    """Why the provider cannot be called at the address that variables give it, with their names; "" when it can, or has
    no address yet."""
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
    """The provider's settings (region, project …) by name, "" where the environment has none.

    An entry reads "NAME|OTHER_NAME=default". A secret setting may be named by NAME_FILE. "… -> word: value, …" tells
    what the words that are taken stand for; another word gives "".
    """
    return {
        setting: _setting(sources, environment, environment.get(file.variable(provider.id, setting), ""))
        for setting, sources in provider.settings.items()
    }


def is_configured(provider: Provider, environment: Mapping[str, str]) -> bool:
    """Whether the platform can use `provider`: it has a key, or it needs none and its address is known."""
    if credentials_for(provider, environment):
        return True
    return not provider.key_required and bool(
        provider.address or provider.protocol == "sandbox" or base_url_for(provider, environment)
    )


def wanting(provider: Provider, environment: Mapping[str, str]) -> str:
    """What to set so that the platform can use `provider`, e.g. "OPENAI_API_KEY (or LLM_OPENAI_API_KEY)"; "" when
    nothing is wanting. A vendor's usual name stands before our own."""
    wanted = []
    if provider.key_required and not credentials_for(provider, environment):
        names = [_spelled(name) for name in provider.credential[:1]]
        own = variable_of(provider.id, "API_KEY")
        wanted.append(f"{names[0]} (or {own})" if names else own)
    if provider.protocol != "sandbox" and not base_url_for(provider, environment):
        settings = settings_for(provider, environment)
        if fill_address(provider.address, settings):
            needed = []
        else:
            needed = needed_settings(provider.address, settings)
        wanted += [provider.settings[name].partition("=")[0].partition("|")[0] for name in needed]
        if not provider.address:
            wanted.append(variable_of(provider.id, "BASE_URL"))
    return " and ".join(wanted)


def _spelled(names: str) -> str:
    """The variables of a `credential`, without those that may be absent."""
    return " and ".join(name for name in names.split(":") if not name.endswith("?"))


def _setting(sources: str, environment: Mapping[str, str], written: str) -> str:
    sources, _, table = sources.partition(" -> ")
    names, _, default = sources.partition("=")
    values = (read_secret(environment, name).strip() for name in names.split("|"))
    found = next((value for value in values if value), written or default)
    if not table:
        return found
    words = dict(pair.split(": ", 1) for pair in table.split(", "))
    return words.get(found.lower(), "")


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
    """A service account's JSON is one key whatever commas are in it."""
    if text.lstrip().startswith("{"):
        return [text.strip()]
    return [key.strip() for key in text.split(",") if key.strip()]
