"""Addresses of providers: base URLs with or without their version path, and the settings filled in.

An entry's address ends with its version path; a protocol appends the operation ("/chat/completions").
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.catalogue.entries import Provider
from gateway.configuration.address_checks import url_problem

SCHEMES = ("https", "http")
OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
VERSION = re.compile(r"/v\d+[a-z0-9]*(/|$)")
# What a pasted address may end with beyond its base: the operation of a wire format.
OPERATION = re.compile(r"/(chat/completions|completions|responses|messages|embeddings|models)$")


def join_base(provider: Provider, base_url: str) -> str:
    """The address that an operator's base URL means for `provider`, without a trailing slash; "" gives the entry's.

    A base URL that ends with the version path is taken as it is; one that stops short within it, or on the provider's
    own host, is completed; one with another version in its path is the operator's choice, and so is the full address
    of an operation, less the operation; any other gets the path.
    """
    base = base_url.strip().rstrip("/")
    if not base:
        return provider.address
    ending = provider.version_path
    covered = _overlap(base, ending)
    if not covered and OPERATION.search(base):
        return OPERATION.sub("", base)
    if _stops_short(base, provider.address):
        return provider.address
    if not covered and VERSION.search(urlsplit(base).path):
        return base
    return base + ending[covered:]


def fill_address(address: str, settings: Mapping[str, str]) -> str:
    """`address` with its {settings} filled in. A part in [brackets] is left out when a setting in it is empty;
    elsewhere an empty setting gives "": the provider cannot be used."""

    def keep(part: re.Match[str]) -> str:
        if all(settings.get(name) for name in PLACEHOLDER.findall(part[1])):
            return part[1]
        return ""

    whole = OPTIONAL.sub(keep, address)
    if any(not settings.get(name) for name in PLACEHOLDER.findall(whole)):
        return ""
    return PLACEHOLDER.sub(lambda found: settings[found[1]], whole)


def needed_settings(address: str, settings: Mapping[str, str]) -> list[str]:
    """The settings without which `address` is none, and which are empty."""
    return [name for name in PLACEHOLDER.findall(OPTIONAL.sub("", address)) if not settings.get(name)]


def address_of(provider: Provider, base_url: str, settings: Mapping[str, str], mapping_address: str = "") -> str:
    """Where requests go: the operator's base URL, else the mapping's own address, else the provider's; "" when there
    is none or a setting that it needs is missing."""
    if base_url:
        template = join_base(provider, base_url)
    else:
        template = mapping_address or provider.address
    return fill_address(template, settings)


def problem_of(template: str) -> str:
    """Why an address with {settings} in it can be none; "" for a good one."""
    return url_problem(PLACEHOLDER.sub("x", OPTIONAL.sub(r"\1", template)), SCHEMES)


def _stops_short(base: str, address: str) -> bool:
    """Whether `base` is on the provider's own host with only the beginning of its path."""
    if "{" in urlsplit(address).netloc:
        return False
    return address == base or address.startswith(base + "/")


def _overlap(base: str, ending: str) -> int:
    """The length of the longest beginning of `ending`, in whole segments, that `base` already ends with."""
    cuts = [i for i, letter in enumerate(ending) if letter == "/" and i] + [len(ending)]
    return max((cut for cut in cuts if base.endswith(ending[:cut])), default=0)
