"""Images in JSON bodies: large ones are stored on the disk, and invalid base64 is reported by its field."""

import tracemalloc
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.providers.sandbox.images import png
from gateway.surfaces.bodies import image_uploads as image_uploads_module
from gateway.surfaces.web.http import Inbound

PNG = png(8, 8, "x")


def load(folder: Path, text: str) -> Any:
    services: Any = SimpleNamespace(settings=SimpleNamespace(spool_dir=str(folder)))
    inbound = Inbound("POST", "/v1/images/edits", {})
    return image_uploads_module.load(services, inbound, f"data:image/png;base64,{text}", "images.0.image_url")


def test_a_large_picture_of_a_data_url_lies_on_the_disk(tmp_path: Path) -> None:
    data = PNG + bytes(12 << 20)
    text = b64encode(data).decode()
    tracemalloc.start()
    found = load(tmp_path, text)
    peak = tracemalloc.get_traced_memory()[1] - len(text)  # the data URL is built here only once
    tracemalloc.stop()
    assert found.file.on_disk and found.media_type == "image/png" and len(found.file) == len(data)
    assert b"".join(found.file.pieces()) == data and peak < 4 << 20


@pytest.mark.parametrize(
    "text",
    ["%%", "AAA", b64encode(PNG).decode() + "=", "AA==" + "A" * (1 << 18), "A" * ((1 << 18) - 1) + "=" + "AAAA"],
    ids=len,
)
def test_invalid_base64_is_reported_by_its_field(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        load(tmp_path, text)
    assert (caught.value.param, caught.value.code) == ("images.0.image_url", "invalid_parameters")
