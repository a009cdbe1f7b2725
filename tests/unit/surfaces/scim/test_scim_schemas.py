"""The described answers of SCIM are those that clients get."""

from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from gateway.accounts.provisioning.provisioned_groups import ProvisionedGroup
from gateway.accounts.provisioning.user_rows import ProvisionedUser
from gateway.surfaces.scim.attributes import ENTERPRISE
from gateway.surfaces.scim.resources import show_group, show_user
from gateway.surfaces.scim.scim_answers import LIST_URN
from gateway.surfaces.scim.scim_schemas import RESOURCE_LIST, USER_SHAPE

BASE = "https://gateway.example/scim/v2"
PERSON = ("ada@example.com", "external", "ada@example.com", "ada@example.com", "Ada")
GROUP = show_group(ProvisionedGroup("group_1", "org_1", "Research", "", "1", 0, 0, ("member_1",)), BASE)


def user(**attributes: Any) -> dict[str, Any]:
    return show_user(
        ProvisionedUser("member_1", "org_1", "user_1", "developer", True, True, *PERSON, attributes, "1", 0, 0), BASE
    )


def list_of(*resources: Any) -> dict[str, Any]:
    counts = {"totalResults": len(resources), "startIndex": 1, "itemsPerPage": len(resources)}
    return {"schemas": [LIST_URN], **counts, "Resources": list(resources)}


@pytest.mark.parametrize("extension", [{"department": "Research"}, {"manager": {"value": "member_2"}}])
def test_a_user_matches_its_description_with_and_without_the_enterprise_extension(extension: dict[str, Any]) -> None:
    described = Draft202012Validator(USER_SHAPE)
    described.validate(user(title="Countess"))
    described.validate(user(**{ENTERPRISE: extension}))
    for wrong in (["x"], {name: 1 for name in extension}):
        assert not described.is_valid(user(**{ENTERPRISE: wrong}))


def test_a_search_is_described_as_a_list_of_users_and_groups() -> None:
    described = Draft202012Validator(RESOURCE_LIST)
    described.validate(list_of(user(), GROUP))
    for resource in ({**GROUP, "members": 1}, {**user(), "emails": 1}, {"id": "member_1"}):
        assert not described.is_valid(list_of(resource))
