"""PATCH of users: the forms of RFC 7644, Entra ID and Okta."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.scim import patches
from gateway.surfaces.scim.attributes import ENTERPRISE, USERS
from gateway.surfaces.scim.resources import values_of
from gateway.surfaces.scim.routes import describe_value
from gateway.surfaces.scim.scim_answers import ScimPatchOperation
from gateway.surfaces.web.answer_structs import describe_answer

WORK = {"value": "ada@example.com", "type": "work", "primary": True}
HOME = {"value": "ada@home.example", "type": "home"}


def ada() -> dict[str, Any]:
    return {
        "userName": "ada@example.com",
        "active": True,
        "name": {"givenName": "Ada"},
        "emails": [dict(WORK), dict(HOME)],
        ENTERPRISE: {"department": "Research"},
    }


def patched(*operations: dict[str, Any]) -> dict[str, Any]:
    """Return the document of Ada after operations."""
    document = ada()
    for operation in patches.read_operations({"Operations": list(operations)}):
        patches.apply(USERS, document, operation)
    return document


def refused(*operations: dict[str, Any]) -> str:
    with pytest.raises(InvalidRequest) as error:
        patched(*operations)
    return error.value.code


def test_capital_operations_and_texts_as_booleans_of_entra_are_understood() -> None:
    assert patched({"op": "Replace", "path": "active", "value": "False"})["active"] is False
    assert patched({"op": "Replace", "value": {"active": "false"}})["active"] is False
    assert patched({"op": "Add", "path": "active", "value": True})["active"] is True


def test_the_described_operations_are_those_of_the_standard_and_of_entra() -> None:
    """RFC 7644, section 3.5.2; Entra ID capitalizes them."""
    described = describe_answer(ScimPatchOperation)["properties"]["op"]["enum"]
    assert set(described) == {"add", "replace", "remove", "Add", "Replace", "Remove"}
    for name in described:
        patched({"op": name, "path": "name.givenName", "value": "Ada"})


def test_members_of_a_user_are_described_with_their_types() -> None:
    """RFC 7643, section 4.1."""
    types = {
        name: describe_value(USERS.schema.by_name[name])["type"] for name in ("username", "active", "name", "emails")
    }
    assert types == {"username": "string", "active": "boolean", "name": "object", "emails": "array"}


def test_paths_as_names_of_members_are_understood() -> None:
    document = patched(
        {
            "op": "Add",
            "value": {
                "name.familyName": "Lovelace",
                'emails[type eq "work"].value': "countess@example.com",
                f"{ENTERPRISE}:costCenter": "7",
                "displayName": "Ada L.",
                "unknownAttribute": {"x": 1},
                "id": "stolen",
            },
        }
    )
    assert document["name"] == {"givenName": "Ada", "familyName": "Lovelace"}
    assert document["emails"][0]["value"] == "countess@example.com"
    assert document[ENTERPRISE] == {"department": "Research", "costCenter": "7"}
    assert document["displayName"] == "Ada L." and "id" not in document and "unknownAttribute" not in document


def test_values_of_a_list_are_selected_by_filter() -> None:
    changed = patched({"op": "replace", "path": 'emails[type eq "home"].value', "value": "new@home.example"})
    assert changed["emails"] == [WORK, {"value": "new@home.example", "type": "home"}]
    assert patched({"op": "remove", "path": 'emails[type eq "home"]'})["emails"] == [WORK]
    removed = patched({"op": "remove", "path": 'emails[type eq "home"].type'})
    assert removed["emails"] == [WORK, {"value": "ada@home.example"}]


def test_add_creates_the_value_that_the_filter_describes_and_replace_does_not() -> None:
    added = patched({"op": "Add", "path": 'emails[type eq "other"].value', "value": "x@example.com"})
    assert added["emails"][-1] == {"type": "other", "value": "x@example.com"}
    assert refused({"op": "replace", "path": 'emails[type eq "other"].value', "value": "x"}) == "no_target"


def test_added_values_are_appended_once_and_one_of_them_is_primary() -> None:
    more = {"value": "x@example.com", "type": "other", "primary": "True"}
    document = patched({"op": "add", "path": "emails", "value": [more, HOME]})
    assert [email["value"] for email in document["emails"]] == ["ada@example.com", "ada@home.example", "x@example.com"]
    assert [email.get("primary") for email in document["emails"]] == [False, None, True]


def test_extensions_are_changed_by_their_urn() -> None:
    manager = patched({"op": "Add", "path": f"{ENTERPRISE}:manager", "value": "member_2"})
    assert manager[ENTERPRISE]["manager"] == {"value": "member_2"}
    whole = patched({"op": "replace", "path": ENTERPRISE, "value": {"division": "North"}})
    assert whole[ENTERPRISE] == {"department": "Research", "division": "North"}
    assert ENTERPRISE not in patched({"op": "remove", "path": f"{ENTERPRISE}:department"})
    assert ENTERPRISE not in patched({"op": "remove", "path": ENTERPRISE})


def test_attributes_that_the_gateway_does_not_use_are_accepted_and_dropped() -> None:
    document = patched(
        {"op": "Add", "path": 'addresses[type eq "work"].locality', "value": "London"},
        {"op": "Replace", "path": 'phoneNumbers[type eq "mobile"].value', "value": "+44"},
        {"op": "Add", "path": "password", "value": "secret"},
        {"op": "Replace", "value": {"password": "secret"}},
        {"op": "Replace", "path": "nickName", "value": "A"},
        {"op": "Replace", "path": "profileUrl", "value": "https://ada.example.com"},
        {"op": "Add", "path": "ims", "value": [{"value": "ada", "type": "xmpp"}]},
        {"op": "Add", "path": "photos", "value": [{"value": "https://ada.example.com/photo", "type": "photo"}]},
        {"op": "Add", "path": "roles", "value": [{"value": "Engineer", "primary": True}]},
        {"op": "Add", "path": "entitlements", "value": [{"value": "licence"}]},
        {"op": "Add", "path": "x509Certificates", "value": [{"value": "MIIDQzCCAqyg"}]},
    )
    assert document == ada()


def test_a_user_keeps_required_attributes_and_the_state() -> None:
    assert refused({"op": "remove", "path": "userName"}) == "invalid_value"
    assert refused({"op": "remove", "path": "active"}) == "invalid_value"
    assert refused({"op": "replace", "path": "active", "value": None}) == "invalid_value"
    assert "title" not in patched({"op": "replace", "path": "title", "value": ""})
    assert "name" not in patched({"op": "remove", "path": "name"})


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "replace", "path": "id", "value": "x"}, "read_only"),
        ({"op": "add", "path": "groups", "value": [{"value": "x"}]}, "read_only"),
        ({"op": "replace", "path": "meta.created", "value": "x"}, "read_only"),
        ({"op": "replace", "path": "shoeSize", "value": "x"}, "invalid_path"),
        ({"op": "replace", "path": "name.shoeSize", "value": "x"}, "invalid_path"),
        ({"op": "replace", "path": 'userName[value eq "x"]', "value": "x"}, "invalid_path"),
        ({"op": "replace", "path": 'emails[type eq "work"].size', "value": "x"}, "invalid_path"),
        ({"op": "add", "path": 'title[value eq "x"]', "value": "x"}, "invalid_path"),
        ({"op": "add", "path": 'name[givenName eq "x"].familyName', "value": "x"}, "invalid_path"),
        ({"op": "add", "path": f'{ENTERPRISE}:manager[value eq "x"]', "value": {"value": "x"}}, "invalid_path"),
        ({"op": "replace", "path": "emails[type eq", "value": "x"}, "invalid_filter"),
        ({"op": "replace", "path": "active", "value": "perhaps"}, "invalid_value"),
        ({"op": "replace", "path": "title", "value": ["x"]}, "invalid_value"),
        ({"op": "replace", "path": "title", "value": "x" * 2_000}, "invalid_value"),
        ({"op": "replace", "path": "title", "value": "x\0"}, "invalid_value"),
        ({"op": "add", "path": "emails", "value": [{"value": f"{n}@x.example"} for n in range(60)]}, "invalid_value"),
        ({"op": "replace", "value": "x"}, "invalid_value"),
        ({"op": "replace", "path": ENTERPRISE, "value": "x"}, "invalid_value"),
        ({"op": "remove"}, "no_target"),
        ({"op": "move", "path": "title"}, "invalid_json"),
        ({"path": "title"}, "invalid_json"),
        ({"op": "add", "path": 7, "value": "x"}, "invalid_path"),
        ("remove", "invalid_json"),
    ],
)
def test_an_operation_that_cannot_be_applied_is_refused(operation: Any, code: str) -> None:
    assert refused(operation) == code


def test_the_number_of_operations_is_limited() -> None:
    many = [{"op": "replace", "path": "title", "value": "x"}] * 1_001
    with pytest.raises(InvalidRequest) as error:
        patches.read_operations({"Operations": many})
    assert error.value.code == "too_many"
    for body in ({}, {"Operations": []}, {"Operations": "x"}):
        with pytest.raises(InvalidRequest):
            patches.read_operations(body)


def test_the_address_of_the_account_is_the_primary_one_then_that_of_work() -> None:
    assert values_of(ada()).email == "ada@example.com"
    document = patched({"op": "replace", "path": 'emails[type eq "home"].primary', "value": True})
    assert values_of(document).email == "ada@home.example"
    assert values_of({"userName": "grace@example.com"}).email == "grace@example.com"
    with pytest.raises(InvalidRequest):
        values_of({"userName": "grace"})


def test_the_name_for_the_console_comes_from_the_best_attribute() -> None:
    name = {"givenName": "Ada", "familyName": "Lovelace"}
    assert values_of({"userName": "a@b.example", "name": name}).name == "Ada Lovelace"
    assert values_of({"userName": "a@b.example", "name": {**name, "formatted": "A. L."}}).name == "A. L."
    assert values_of({"userName": "a@b.example", "name": name, "displayName": "Countess"}).name == "Countess"


def test_attributes_with_a_column_are_stored_once() -> None:
    values = values_of(
        {"userName": "ada@example.com", "externalId": "7", "active": False, "emails": [WORK], "title": "Dr"}
    )
    assert (values.user_name, values.external_id, values.active) == ("ada@example.com", "7", False)
    assert set(values.attributes) == {"emails", "title"}
