"""The way to the addresses of single providers, from the environment and the operator's file: a proxy, further
authorities, a client certificate."""

import re
import ssl
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from gateway.catalogue.base_urls import OPTIONAL, PLACEHOLDER, join_base
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Provider
from gateway.catalogue.environment_credentials import base_url_for, variable_of
from gateway.configuration import file
from gateway.configuration.outgoing_settings import DIRECT, proxy_problem
from gateway.transport.outgoing_routes import ProviderRoute, make_context

# Setting in [providers.<id>] of gateway.toml → ending of the variable LLM_<ID>_….
VARIABLES = {name: name.upper() for name in file.ROUTE_KEYS}
ANY_LABELS = r"[a-z0-9.-]*"
FILLER = "placeholder"


def routes_of(catalogue: Catalogue, environment: Mapping[str, str]) -> tuple[ProviderRoute, ...]:
    """Return the ways of the providers that have one of their own."""
    addresses: dict[str, set[str]] = {}
    for model in catalogue.models.values():
        for mapping in model.mappings:
            if mapping.address:
                addresses.setdefault(mapping.provider, set()).add(mapping.address)
    routes = []
    for provider in catalogue.providers.values():
        chosen = read_choices(provider.id, environment)
        if any(chosen.values()):
            base_url = base_url_for(provider, environment)
            used = [join_base(provider, base_url)] if base_url else [provider.address, *addresses.get(provider.id, ())]
            routes.append(
                ProviderRoute(
                    match_hosts(used),
                    chosen["proxy"] or None,
                    chosen["ca_file"],
                    chosen["client_certificate_file"],
                    chosen["client_key_file"],
                )
            )
    return tuple(routes)


def read_choices(provider_id: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the configured values by the names of gateway.toml; "" where there is none. Variables come first."""
    return {
        name: environment.get(variable_of(provider_id, ending), "").strip()
        or environment.get(file.variable(provider_id, name), "")
        for name, ending in VARIABLES.items()
    }


def problems_of(provider: Provider, environment: Mapping[str, str]) -> list[str]:
    """Return invalid values with their variables, without quoting a part of an address, one line each."""
    chosen = read_choices(provider.id, environment)
    problems = []
    if chosen["proxy"] not in ("", DIRECT) and (problem := proxy_problem(chosen["proxy"])):
        problems.append(f"{variable_of(provider.id, 'PROXY')}: {problem}")
    certificate, key = chosen["client_certificate_file"], chosen["client_key_file"]
    if key and not certificate:
        problems.append(f"{variable_of(provider.id, 'CLIENT_KEY_FILE')}: it needs CLIENT_CERTIFICATE_FILE beside it")
    elif chosen["ca_file"] or certificate:
        problem = certificates_problem([chosen["ca_file"]], certificate, key)
        if problem:
            problems.append(
                f"{variable_of(provider.id, 'CLIENT_CERTIFICATE_FILE' if certificate else 'CA_FILE')}: {problem}"
            )
    return problems


def certificates_problem(ca_files: Iterable[str], certificate: str = "", key: str = "") -> str:
    """Return why files of certificates cannot be used; "" if they can."""
    try:
        make_context([path for path in ca_files if path], certificate, key)
    except ssl.SSLError:
        return "a file has no valid PEM certificate or key, or the key is of another certificate"
    except OSError as error:
        return f"cannot read a file: {error.strerror or 'not readable'}"
    return ""


def match_hosts(addresses: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the hosts of addresses; their {settings} may have any value."""
    patterns = []
    for address in addresses:
        filled = PLACEHOLDER.sub(FILLER, OPTIONAL.sub(FILLER, address))
        host = urlsplit(filled).hostname or ""
        if host:
            patterns.append(re.escape(host).replace(FILLER, ANY_LABELS))
    return re.compile("|".join(patterns) or r"(?!)")
