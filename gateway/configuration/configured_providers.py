"""The identity providers of the installation: OpenID providers that the operator configured for single sign-on.

They are tables of gateway.toml, or a JSON object of the same form in the variable GATEWAY_IDENTITY_PROVIDERS:

```toml
[identity_providers.entra]
name = "Acme"
issuer = "https://login.microsoftonline.com/<tenant>/v2.0"
client_id = "…"
client_secret = "env:ENTRA_SECRET"
```
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from gateway.configuration.file import IDENTITY_PROVIDERS, SettingsError, read_secret
from gateway.configuration.setting_checks import suggest_similar, url_problem
from gateway.configuration.value_parsing import NumberRange

VARIABLE = "GATEWAY_IDENTITY_PROVIDERS"
ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
DOMAIN = re.compile(r"(?=.{3,253}$)[a-z0-9]([a-z0-9-]{0,62}\.)+[a-z][a-z0-9-]{1,62}")
MAX_PROVIDERS = 20
DEFAULT_SCOPES = ("email", "profile")  # beside openid, which is always requested
ROLES = ("", "viewer", "developer", "billing", "admin")
MAX_TEXT_LENGTH = 512
# Attributes of a person that claims may state, with the names of RFC 7643, section 4.3 (enterprise user extension).
ATTRIBUTES = ("costCenter", "department", "division", "organization", "employeeNumber")


@dataclass(frozen=True, slots=True)
class SingleSignOn:
    """The settings of single sign-on, for the providers of the installation and of organizations."""

    recheck_s: Annotated[float, NumberRange(60, 86_400)]
    unchecked_s: Annotated[float, NumberRange(60, 7 * 86_400)]
    session_s: Annotated[float, NumberRange(300, 30 * 86_400)]
    timeout_s: Annotated[float, NumberRange(1, 60)]


@dataclass(frozen=True, slots=True)
class ConfiguredProvider:
    """An identity provider of the installation.

    `domains` limits sign-in to e-mail addresses of these domains, and routes their people here. `trust_email` accepts
    the e-mail address of a token that does not say whether it is verified. `link_by_email` connects existing accounts
    by their verified address, `create_people` creates accounts at the first sign-in; new people join `organizations`
    in the `role` ("": only where a group rule matches). The groups are in the claim `groups_claim` ("": none).
    `attribute_claims` maps names of ATTRIBUTES to claims.
    """

    id: str
    name: str
    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    groups_claim: str = ""
    attribute_claims: Mapping[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    organizations: tuple[str, ...] = ()
    role: str = ""
    trust_email: bool = False
    link_by_email: bool = False
    create_people: bool = False


SETTINGS = {setting.name: setting.type for setting in fields(ConfiguredProvider) if setting.name != "id"}
REQUIRED = ("issuer", "client_id")


def read_providers(tables: Mapping[str, Any]) -> tuple[tuple[ConfiguredProvider, ...], list[str]]:
    """Return the providers of tables by id, and a line for each problem; a provider with a problem is left out."""
    problems: list[str] = []
    providers = []
    if len(tables) > MAX_PROVIDERS:
        problems.append(f"[{IDENTITY_PROVIDERS}] there are more than {MAX_PROVIDERS} identity providers")
    for ident, values in list(tables.items())[:MAX_PROVIDERS]:
        found = _problems_of(ident, values)
        problems += [f"[{IDENTITY_PROVIDERS}.{ident}] {text}" for text in found]
        if not found:
            lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
            ready = {"name": ident, **values, **lists}
            ready["domains"] = tuple(domain.lower() for domain in ready.get("domains", ()))
            ready["scopes"] = tuple(dict.fromkeys(("openid", *ready.get("scopes", DEFAULT_SCOPES))))
            providers.append(ConfiguredProvider(id=ident, **ready))
    return tuple(providers), problems


def load_providers(
    environment: Mapping[str, str], tables: Mapping[str, Any]
) -> tuple[tuple[ConfiguredProvider, ...], list[str]]:
    """Return the providers of the file's `tables` and of the variable, which takes precedence, and all problems."""
    try:
        named, problems = _read_variable(read_secret(environment, VARIABLE))
    except SettingsError as error:
        named, problems = {}, [str(error)]
    providers, more = read_providers({**tables, **named})
    return providers, problems + more


def _read_variable(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the tables of the variable's JSON, and its problems."""
    if not text:
        return {}, []
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError):
        return {}, [f"{VARIABLE}: it is not JSON"]
    if not isinstance(tables, dict):
        return {}, [f"{VARIABLE}: expected a JSON object with a member for each identity provider"]
    return tables, []


def domain_problem(domain: str) -> str:
    """Return why this is no domain of e-mail addresses, "" if it is one."""
    if DOMAIN.fullmatch(domain):
        return ""
    return f"{domain[:80]!r} is not a domain such as example.com"


def _problems_of(ident: str, values: Any) -> list[str]:
    if not ID.fullmatch(ident):
        return ["an id has lower-case letters, digits and dashes, at most 40"]
    if not isinstance(values, dict):
        return ["expected a table"]
    problems = [
        f"there is no setting {name}{suggest_similar(name, SETTINGS)}" for name in values if name not in SETTINGS
    ]
    problems += [f"{name} is missing" for name in REQUIRED if not values.get(name)]
    problems += [
        text for name, kind in SETTINGS.items() if name in values and (text := _type_problem(name, kind, values[name]))
    ]
    if problems:
        return problems
    if problem := url_problem(values["issuer"], ("https", "http")):
        problems.append(f"issuer: {problem}")
    if values.get("role", "") not in ROLES:
        problems.append("role: expected viewer, developer, billing, admin, or nothing")
    problems += [f"domains: {text}" for text in map(domain_problem, _lowered(values.get("domains", []))) if text]
    if values.get("create_people") and not values.get("organizations"):
        problems.append("create_people: name the organizations that new people join")
    return problems


def _lowered(domains: list[str]) -> list[str]:
    return [domain.lower() for domain in domains]


def _type_problem(name: str, kind: Any, value: Any) -> str:
    if kind is bool:
        valid = isinstance(value, bool)
        expected = "true or false"
    elif kind is str:
        valid = _is_text(value)
        expected = f"text of at most {MAX_TEXT_LENGTH} characters"
    elif name == "attribute_claims":
        valid = isinstance(value, dict) and set(value) <= set(ATTRIBUTES) and all(map(_is_text, value.values()))
        expected = f"a table of claims by the names {', '.join(ATTRIBUTES)}"
    else:
        valid = isinstance(value, list) and len(value) <= 100 and all(map(_is_text, value))
        expected = "a list of texts"
    return "" if valid else f"{name}: expected {expected}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH
