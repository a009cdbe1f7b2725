import pytest

from gateway.configuration.settings import SettingsError
from gateway.surfaces import surface_table


def test_an_extension_may_only_add_surfaces():
    before = surface_table.SURFACES
    with pytest.raises(SettingsError, match="str"):
        surface_table.add(["acme"])
    assert before == surface_table.SURFACES
