import hashlib
import tomllib
from importlib import resources

import pytest

from gateway.surfaces.console.assets import MEDIA_TYPES

ASSETS = resources.files("gateway.surfaces.console").joinpath("assets")
VENDORED = tomllib.loads(ASSETS.joinpath("vendored.toml").read_text())


@pytest.mark.parametrize("name", VENDORED)
def test_a_vendored_file_is_that_of_its_package(name: str) -> None:
    row = VENDORED[name]
    assert hashlib.sha256(ASSETS.joinpath(name).read_bytes()).hexdigest() == row["sha256"]
    assert row["license"] and row["integrity"].startswith("sha512-") and name in MEDIA_TYPES
