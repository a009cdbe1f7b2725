"""The described answers of SCIM are those that clients get."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from gateway.accounts.provisioning.provisioned_groups import ProvisionedGroup
from gateway.accounts.provisioning.user_rows import ProvisionedUser
from gateway.surfaces.scim.attributes import ENTERPRISE, GROUPS_TYPE, USERS, resolve
from gateway.surfaces.scim.resources import show_group, show_user
from gateway.surfaces.scim.routes import RESOURCE_LIST, USER_SHAPE
from gateway.surfaces.scim.scim_answers import LIST_URN

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


def paths_of(resource: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths of all attributes and sub-attributes that a resource has."""
    for name, value in resource.items():
        yield prefix + name
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from paths_of(part, f"{prefix}{name}{':' if ':' in name else '.'}")


def test_each_attribute_of_an_answer_can_be_named_in_filters_and_selections() -> None:
    group = ProvisionedGroup("group_1", "org_1", "Research", "external", "1", 0, 0, ("member_1",))
    shown = [(USERS, user(title="Countess", **{ENTERPRISE: {"department": "Research"}}))]
    shown.append((GROUPS_TYPE, show_group(group, BASE)))
    for kind, resource in shown:
        for path in paths_of(resource):
            found = resolve(kind, path)
            assert found.is_known and (found.part is not None) == ("." in path.rpartition(":")[2]), path


STANDARD = """
userName displayName title userType preferredLanguage locale timezone active
name.formatted name.familyName name.givenName name.middleName name.honorificPrefix name.honorificSuffix
emails.value emails.display emails.type emails.primary groups.value groups.$ref groups.display
"""
OF_COMPANIES = """
employeeNumber costCenter organization division department manager.value manager.$ref manager.displayName
"""


def test_a_user_has_the_attributes_of_the_standard() -> None:
    """RFC 7643, sections 4.1 and 4.3."""
    paths = [*STANDARD.split(), *(f"{ENTERPRISE}:{name}" for name in OF_COMPANIES.split())]
    assert [path for path in paths if resolve(USERS, path).attribute is None] == []
    use = resolve(USERS, "emails.type").part
    assert use is not None and set(use.words) == {"work", "home", "other"}


def test_references_name_the_type_of_their_resources() -> None:
    member, kind = resolve(GROUPS_TYPE, "members.$ref").part, resolve(GROUPS_TYPE, "members.type").part
    group, manager = resolve(USERS, "groups.$ref").part, resolve(USERS, f"{ENTERPRISE}:manager.$ref").part
    assert member and group and manager and kind
    assert (member.references, kind.words, manager.references, group.references) == (("User",),) * 3 + (("Group",),)
