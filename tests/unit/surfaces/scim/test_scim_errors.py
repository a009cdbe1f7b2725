"""Errors of the provisioning API: the `scimType` of RFC 7644, table 9, which identity providers decide by."""

import pytest

from gateway.errors import Conflict, Forbidden, InvalidRequest
from gateway.surfaces.scim.scim_call import error_body


@pytest.mark.parametrize(
    ("code", "scim_type"),
    [
        ("invalid_filter", "invalidFilter"),
        ("invalid_path", "invalidPath"),
        ("no_target", "noTarget"),
        ("read_only", "mutability"),
        ("invalid_value", "invalidValue"),
        ("invalid_parameters", "invalidValue"),
        ("invalid_json", "invalidSyntax"),
        ("too_many", "tooMany"),
    ],
)
def test_an_invalid_request_is_named_as_in_the_standard(code: str, scim_type: str) -> None:
    body = error_body(InvalidRequest("The request is invalid.", code=code), "")
    assert (body["status"], body["scimType"]) == ("400", scim_type)


@pytest.mark.parametrize("code", ["user_exists", "member_exists", "group_exists"])
def test_a_name_that_is_taken_is_a_violation_of_uniqueness(code: str) -> None:
    body = error_body(Conflict("It exists.", code=code), "")
    assert (body["status"], body["scimType"]) == ("409", "uniqueness")


def test_other_errors_have_no_type() -> None:
    assert "scimType" not in error_body(Forbidden("The owner cannot be removed."), "")
