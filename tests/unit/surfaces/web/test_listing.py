"""Model lists as responses: what many callers hold of one list, and what one caller reads."""

import gzip
import tracemalloc
from collections.abc import Iterator

import pytest

from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.surfaces.web import listing as listing_module
from gateway.surfaces.web.http import Inbound

MB = 1 << 20
PARTS = (b"[", memoryview(b"x" * 6 * MB), b",", memoryview(b"y" * 4 * MB), b"]")


@pytest.fixture
def holder() -> CurrentCatalogue:
    return CurrentCatalogue(Catalogue([], [], {}), 8)


def test_sixty_unread_lists_share_their_memory(holder: CurrentCatalogue) -> None:
    inbound = Inbound("GET", "/v1/models", {})
    tracemalloc.start()
    try:
        bodies = [listing_module.reply(inbound, holder, '"a"', PARTS).body for _ in range(60)]
        for body in bodies:
            assert isinstance(body, Iterator) and next(body) == b"[" and len(next(body)) <= listing_module.PIECE_BYTES
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 6 * MB, held  # each caller holds one piece


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_list_in_parts_arrives_whole(holder: CurrentCatalogue, coding: str) -> None:
    body = listing_module.reply(Inbound("GET", "/v1/models", {"accept-encoding": coding}), holder, '"a"', PARTS).body
    whole = body if isinstance(body, bytes) else b"".join(body)
    assert (gzip.decompress(whole) if coding else whole) == b"".join(PARTS)
