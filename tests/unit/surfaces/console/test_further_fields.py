"""Fields of a form that follow from the members of an operation's body."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.console.limit_forms import FormField, list_further_fields, read_further_fields
from gateway.surfaces.console.page_calls import ManagementCall
from gateway.surfaces.visitors.validation_schemas import OneOf, StrictBoolean, TextField, WholeNumber

MEMBERS = {
    "name": TextField(),
    "costCentre": TextField(0, 20, about="Number of the cost centre."),
    "largestAnswer": WholeNumber(1, 100),
    "isPublic": StrictBoolean("Whether everyone sees it."),
    "plan": OneOf(("small", "large")),
}
CALL = cast(ManagementCall, SimpleNamespace(members=MEMBERS))
FURTHER = list_further_fields(CALL, ("name",))


def test_a_field_has_the_type_and_the_label_of_its_member() -> None:
    assert (
        FormField("costCentre", "Cost centre", "Number of the cost centre.", "text"),
        FormField("largestAnswer", "Largest answer", "", "number"),
        FormField("isPublic", "Is public", "Whether everyone sees it.", "check"),
        FormField("plan", "Plan", "", "choice", ("small", "large")),
    ) == FURTHER


@pytest.mark.parametrize(("box", "expected"), [({"isPublic": "on"}, True), ({}, False)])
def test_a_form_is_read_into_the_types_of_the_body(box: dict[str, str], expected: bool) -> None:
    form = {"costCentre": " 12 ", "largestAnswer": "7", "plan": "large", **box}
    members: dict[str, Any] = read_further_fields(form, FURTHER)
    assert members == {"costCentre": "12", "largestAnswer": 7, "isPublic": expected, "plan": "large"}


def test_a_text_in_place_of_a_number_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="The largest answer must be a whole number"):
        read_further_fields({"largestAnswer": "many"}, FURTHER)


def test_an_operation_of_the_product_has_its_members() -> None:
    members = ManagementCall("PATCH /projects/<project_id>").members
    assert {"name", "retentionDays"} <= set(members)
    assert ManagementCall("GET /projects/<project_id>").members == {}
