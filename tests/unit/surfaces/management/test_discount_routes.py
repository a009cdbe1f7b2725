"""Discounts over the management API: the operator sets them, and the organizations concerned read them."""

import pytest

from gateway.accounts import members

ALL = "/discounts"


@pytest.fixture
def root(tenants) -> str:
    """A session of the installation's owner."""
    return tenants.open(members.list_members(tenants.services.store.database)[0].user_id)


def test_the_operator_sets_replaces_and_removes_a_discount(tenants, root) -> None:
    own = tenants["acme owner"].organization_id
    given = {"organizationId": own, "provider": "sandbox", "fraction": "0.25", "startsAt": "2026-01-01T00:00:00Z"}
    made = tenants.ok("PUT", ALL, root, given)["discount"]
    assert (made["model"], made["fraction"], made["startsAt"]) == ("*", "0.25", "2026-01-01T00:00:00.000Z")
    assert tenants.ok("PUT", ALL, root, {**given, "fraction": 0.5})["discount"]["id"] == made["id"]
    assert [discount["fraction"] for discount in tenants.ok("GET", ALL, root)["discounts"]] == ["0.5"]
    assert tenants.ok("DELETE", f"{ALL}/{made['id']}", root)["message"] == "Discount removed."
    assert tenants.refused("DELETE", f"{ALL}/{made['id']}", root) == "404 not_found"
    assert tenants.ok("GET", ALL, root) == {"discounts": []}


def test_owners_and_admins_read_what_concerns_them(tenants, root) -> None:
    tenants.ok("PUT", ALL, root, {"fraction": "0.1"})
    for name in ("acme", "rival"):
        tenants.ok("PUT", ALL, root, {"organizationId": tenants[f"{name} owner"].organization_id, "fraction": "0.2"})
    for role in ("owner", "admin"):
        who = tenants[f"acme {role}"]
        found = tenants.ok("GET", f"/orgs/{who.organization_id}/discounts", who)["discounts"]
        assert [one["organizationId"] for one in found] == ["*", who.organization_id]
    dev = tenants["acme developer"]
    assert tenants.refused("GET", f"/orgs/{dev.organization_id}/discounts", dev) == "403 permission_denied"


def test_only_operators_set_and_see_discounts_of_all(tenants, root) -> None:
    made = tenants.ok("PUT", ALL, root, {"fraction": "0.1"})["discount"]
    for role in ("owner", "admin", "developer"):
        who = tenants[f"acme {role}"]
        assert tenants.refused("GET", ALL, who) == "403 permission_denied"
        assert tenants.refused("PUT", ALL, who, {"fraction": "0.9"}) == "403 permission_denied"
        assert tenants.refused("DELETE", f"{ALL}/{made['id']}", who) == "403 permission_denied"
    assert tenants.ok("GET", ALL, root)["discounts"] == [made]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "fraction"),
        ({"fraction": "1"}, "fraction"),
        ({"fraction": 0}, "fraction"),
        ({"fraction": True}, "fraction"),
        ({"fraction": "0.0000001"}, "fraction"),
        ({"fraction": "0.1", "provider": "nobody"}, "provider"),
        ({"fraction": "0.1", "model": "none"}, "model"),
        ({"fraction": "0.1", "startsAt": "2026-02-01", "endsAt": "2026-01-01"}, "endsAt"),
        ({"fraction": "0.1", "project": "x"}, "project"),
    ],
)
def test_an_improper_discount_is_refused_with_its_field(tenants, root, body: dict, param: str) -> None:
    status, answer = tenants.call("PUT", ALL, root, body)
    assert (status, answer["code"], answer["param"]) == (400, "invalid_parameters", param)


@pytest.mark.parametrize("fraction", ["2", "a fifth", "0.0000001", True])
def test_an_invalid_fraction_is_refused_once_with_the_expected_form(tenants, root, fraction) -> None:
    _, answer = tenants.call("PUT", ALL, root, {"fraction": fraction})
    assert answer["message"].count("between 0 and 1") == 1 and '"0.2"' in answer["message"]


def test_a_discount_of_an_unknown_organization_is_not_found(tenants, root) -> None:
    body = {"organizationId": "org_" + "0" * 32, "fraction": "0.1"}
    assert tenants.refused("PUT", ALL, root, body) == "404 not_found"


def test_the_audit_log_of_the_organization_names_the_author_of_a_discount(tenants, root) -> None:
    owner = tenants["acme owner"]
    tenants.ok("PUT", ALL, root, {"organizationId": owner.organization_id, "fraction": "0.2"})
    newest = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit?limit=1", owner)["entries"][0]
    assert newest["action"] == "discount.set" and newest["detail"]["fraction"] == "0.2"
