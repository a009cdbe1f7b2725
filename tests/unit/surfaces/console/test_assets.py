import gzip
import threading
from os.path import splitext

import pytest

from gateway.surfaces.console import assets


def test_a_file_is_compressed_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    compress = gzip.compress
    used: list[int] = []

    def note(*args: bytes, **options: int) -> bytes:
        used.append(threading.get_native_id())
        return compress(*args, **options)

    monkeypatch.setattr(assets.gzip, "compress", note)
    assets.pack_asset.cache_clear()
    assert assets.asset_path("console.css", "http://localhost").endswith("/console.css") and not used
    packed = assets.pack_asset("console.css")
    assert gzip.decompress(packed) == assets.load_asset("console.css").body
    assert len(used) == 1 and threading.get_native_id() not in used


def test_browsers_get_each_file_with_its_type() -> None:
    """RFC 9239, RFC 2318. With nosniff a browser runs no script and applies no style sheet of another type."""
    types = {splitext(name)[1]: media_type.partition(";")[0] for name, media_type in assets.MEDIA_TYPES.items()}
    assert types == {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
