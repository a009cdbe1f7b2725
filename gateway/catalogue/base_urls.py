"""Base URLs of providers: completed with their version path, and with settings filled in.

An entry's address ends with its version path; a protocol appends the operation ("/chat/completions").
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.catalogue.entries import Provider
from gateway.configuration.setting_checks import url_problem

SCHEMES = ("https", "http")
OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
VERSION = re.compile(r"/v\d[a-z0-9]*+(/|$)")
# Operation paths of the wire formats: a pasted URL may end with one.
OPERATION = re.compile(r"/(chat/completions|completions|responses|messages|embeddings|models)$")


def join_base(provider: Provider, base_url: str) -> str:
    """Return the address for an operator's base URL of `provider`, without a trailing slash; the entry's address for
    "".

    A base URL that ends with the version path is used unchanged. One that ends within the version path, or with a part
    of the path on the provider's own host, is completed. A different version in the path is the operator's choice. The
    full URL of an operation loses the operation. Any other URL gets the version path.
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
    """Return `address` with its {settings} filled in.

    A part in [brackets] is left out if one of its settings is empty; any other empty setting gives "": the provider
    cannot be used.
    """

    def keep(part: re.Match[str]) -> str:
        if all(settings.get(name) for name in PLACEHOLDER.findall(part[1])):
            return part[1]
        return ""

    whole = OPTIONAL.sub(keep, address)
    if any(not settings.get(name) for name in PLACEHOLDER.findall(whole)):
        return ""

    def fill(placeholder: re.Match[str]) -> str:
        return settings[placeholder[1]]

    return PLACEHOLDER.sub(fill, whole)


def needed_settings(address: str, settings: Mapping[str, str]) -> list[str]:
    """Return the empty settings that `address` requires."""
    return [name for name in PLACEHOLDER.findall(OPTIONAL.sub("", address)) if not settings.get(name)]


def address_of(provider: Provider, base_url: str, settings: Mapping[str, str], mapping_address: str = "") -> str:
    """Return the address for requests, "" if there is none or a required setting is missing.

    The operator's base URL takes precedence, then the mapping's own address, then the provider's.
    """
    template = join_base(provider, base_url) if base_url else mapping_address or provider.address
    return fill_address(template, settings)


def problem_of(template: str) -> str:
    """Return why an address with {settings} is invalid; "" for a valid one."""
    return url_problem(PLACEHOLDER.sub("x", OPTIONAL.sub(r"\1", template)), SCHEMES)


def _stops_short(base: str, address: str) -> bool:
    """Return whether `base` is on the provider's own host with only the beginning of its path."""
    if "{" in urlsplit(address).netloc:
        return False
    return address == base or address.startswith(base + "/")


def _overlap(base: str, ending: str) -> int:
    """Return the length of the longest prefix of `ending`, in whole segments, that `base` already ends with."""
    cuts = [i for i, letter in enumerate(ending) if letter == "/" and i] + [len(ending)]
    return max((cut for cut in cuts if base.endswith(ending[:cut])), default=0)
