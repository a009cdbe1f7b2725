"""URLs of images and files in requests."""

import tracemalloc
from collections.abc import Callable

import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.aisdk import prompt
from gateway.surfaces.bodies.media_urls import MAX_HEAD_CHARS, read_media

READERS: dict[str, Callable[[str], object]] = {
    "chat": lambda text: read_media(text, "url"),
    "the AI SDK": lambda text: prompt.read_media(text, "image/*", "data"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_data_url_with_parameters_is_read(reader: str) -> None:
    READERS[reader]("data:image/png;charset=utf-8;base64,iVBORw0KGgo=")
    assert read_media("DATA:Image/PNG;a=b;BASE64,AAAA", "url").media_type == "image/png"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("separators", [";" * 1_000_000, ";a" * 1_000_000 + ";base64,AAAA", "a" * MAX_HEAD_CHARS + ","])
def test_a_data_url_of_separators_is_refused_without_memory_for_each(reader: str, separators: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            READERS[reader](f"data:{separators}")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000  # a copy of the URL at most
