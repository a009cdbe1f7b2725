"""Recognition of a provider by the form of one of its keys."""

from collections.abc import Iterable

from gateway.catalogue.entries import Provider


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
