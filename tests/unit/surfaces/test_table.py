import pytest

from gateway.settings import SettingsError
from gateway.surfaces import table


def test_what_an_extension_adds_must_be_a_surface():
    before = table.SURFACES
    with pytest.raises(SettingsError, match="str"):
        table.add(["acme"])
    assert before == table.SURFACES
