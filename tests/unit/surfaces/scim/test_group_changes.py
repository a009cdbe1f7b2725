"""Changes of groups: the forms of Entra ID and Okta, and their limits."""

from typing import Any

import pytest

from gateway.accounts.provisioning.provisioned_groups import GroupChange
from gateway.errors import InvalidRequest
from gateway.surfaces.scim import patches
from gateway.surfaces.scim.group_views import GroupDraft

CURRENT = ("member_a", "member_b", "member_c")


def edited(*operations: dict[str, Any]) -> tuple[GroupChange, bool]:
    """Return the change that operations make to a group with the members a, b and c, and whether it depends on them."""
    draft = GroupDraft(lambda: CURRENT)
    for operation in patches.read_operations({"Operations": list(operations)}):
        draft.apply(operation)
    return draft.change(), draft.depends


def refused(*operations: dict[str, Any]) -> str:
    with pytest.raises(InvalidRequest) as error:
        edited(*operations)
    return error.value.code


def test_members_are_added_and_removed_by_their_ids_without_a_look_at_the_group() -> None:
    change, depends = edited(
        {"op": "Add", "path": "members", "value": [{"value": "member_d"}, {"value": "member_e", "type": "User"}]},
        {"op": "Remove", "path": "members", "value": [{"value": "member_a"}]},
        {"op": "remove", "path": 'members[value eq "member_b"]'},
        {"op": "remove", "path": 'members[value eq "member_e"]'},
    )
    assert change == GroupChange(None, None, ("member_d",), ("member_a", "member_b", "member_e"))
    assert not depends


def test_okta_renames_a_group_by_a_value_with_its_id() -> None:
    change, _ = edited({"op": "replace", "value": {"id": "sgrp_1", "displayName": " Engineers "}})
    assert change == GroupChange(name="Engineers")


def test_replaced_members_are_compared_with_the_current_ones() -> None:
    change, depends = edited({"op": "replace", "path": "members", "value": [{"value": "member_c"}, "member_d"]})
    assert change == GroupChange(added=("member_c", "member_d"), removed=("member_a", "member_b"))
    assert depends
    assert edited({"op": "remove", "path": "members"})[0] == GroupChange(removed=CURRENT)


def test_members_are_removed_by_any_filter() -> None:
    change, depends = edited(
        {"op": "add", "path": "members", "value": [{"value": "member_d"}]},
        {"op": "remove", "path": 'members[value eq "member_a" or value eq "member_d"]'},
    )
    assert change == GroupChange(removed=("member_a", "member_d")) and depends
    assert refused({"op": "remove", "path": 'members[value sw "other"]'}) == "no_target"


def test_values_without_a_path_set_the_name_the_external_id_and_the_members() -> None:
    value = {"displayName": "A", "externalId": "e-1", "members": [{"value": "member_d"}], "unknown": 1}
    assert edited({"op": "add", "value": value})[0] == GroupChange("A", "e-1", ("member_d",), ())
    assert edited({"op": "remove", "path": "externalId"})[0] == GroupChange(external_id="")


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "add", "path": "members", "value": [{"value": "sgrp_1", "type": "Group"}]}, "invalid_value"),
        ({"op": "add", "path": "members", "value": [{"display": "x"}]}, "invalid_value"),
        ({"op": "add", "path": "members", "value": [7]}, "invalid_value"),
        ({"op": "add", "path": "members", "value": ["x" * 200]}, "invalid_value"),
        ({"op": "replace", "path": 'members[value eq "a"].value', "value": "b"}, "invalid_path"),
        ({"op": "replace", "path": "members.value", "value": "b"}, "invalid_path"),
        ({"op": "remove", "path": "displayName"}, "invalid_value"),
        ({"op": "replace", "path": "displayName", "value": ""}, "invalid_value"),
        ({"op": "replace", "path": "displayName", "value": "x" * 300}, "invalid_value"),
        ({"op": "replace", "path": "id", "value": "x"}, "read_only"),
        ({"op": "replace", "path": "colour", "value": "x"}, "invalid_path"),
        ({"op": "add", "value": "x"}, "invalid_value"),
    ],
)
def test_an_operation_that_cannot_be_applied_to_a_group_is_refused(operation: dict[str, Any], code: str) -> None:
    assert refused(operation) == code


def test_the_members_of_one_request_are_limited() -> None:
    many = [{"value": f"member_{number}"} for number in range(10_001)]
    assert refused({"op": "add", "path": "members", "value": many}) == "too_many"
    half = {"op": "add", "path": "members", "value": many[:6_000]}
    assert refused(half, half) == "too_many"


def test_the_work_of_filters_is_limited() -> None:
    draft = GroupDraft(lambda: [f"member_{number}" for number in range(20_000)])
    operation = {"op": "remove", "path": 'members[not (value eq "x") and value eq "member_7"]'}
    operations = patches.read_operations({"Operations": [operation] * 1_000})
    with pytest.raises(InvalidRequest) as error:
        for operation in operations:
            draft.apply(operation)
    assert error.value.code in ("too_many", "no_target")


def test_the_comparisons_of_members_with_filters_are_bounded() -> None:
    members = [f"member_{number}" for number in range(20_000)]
    comparisons = " or ".join(f'type co "{number}"' for number in range(20))
    draft = GroupDraft(lambda: members)
    with pytest.raises(InvalidRequest) as error:
        draft.apply(patches.PatchOperation("remove", f"members[{comparisons}]", None))
    assert error.value.code == "too_many"
    draft = GroupDraft(lambda: members)
    draft.apply(patches.PatchOperation("remove", 'members[value ew "_19999"]', None))
    assert draft.change() == GroupChange(removed=("member_19999",))
