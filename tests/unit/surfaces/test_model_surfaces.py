"""The surfaces that a worker has from its start."""

import pytest

from gateway.configuration.settings import SettingsError
from gateway.surfaces import model_surfaces, surface_table
from gateway.surfaces.web.request_targets import VARIABLE, Addresses


def test_an_extension_may_only_add_surfaces():
    with pytest.raises(SettingsError, match="str"):
        model_surfaces.with_extensions(["acme"])


def test_every_operation_of_the_express_lane_belongs_to_them():
    assert [operation.path for operation in surface_table.operations() if operation.hot and not is_own(operation)] == []


def is_own(operation):
    return any(operation is own for surface in model_surfaces.SURFACES for own in surface.operations)


def test_the_express_lane_takes_no_path_of_another_surface_for_a_misspelled_one():
    settle = Addresses.of(model_surfaces.SURFACES).settle
    hot = {operation.path for operation in surface_table.operations() if operation.hot}
    others = {VARIABLE.sub("x", operation.path) for operation in surface_table.operations()} - hot
    assert {path for path in others if settle(path) in hot} == set()
