import gzip
import threading

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
