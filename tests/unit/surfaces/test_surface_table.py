import pytest

from gateway.configuration.settings import SettingsError
from gateway.surfaces import surface_table


def test_what_an_extension_adds_must_be_a_surface():
    before = surface_table.SURFACES
    with pytest.raises(SettingsError, match="str"):
        surface_table.add(["acme"])
    assert before == surface_table.SURFACES
