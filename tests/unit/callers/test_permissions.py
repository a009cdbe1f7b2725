from typing import get_args

from gateway.callers.permissions import COLUMNS, RANKS, ROLES, TABLE, Permission, PermissionRow, reach_of, roles_within


def test_a_person_gives_only_roles_with_nothing_beyond_the_own_role() -> None:
    assert {role: set(roles_within(role)) for role in ROLES} == {
        "owner": set(ROLES),
        "admin": set(ROLES) - {"owner"},
        "billing": {"billing", "viewer"},
        "developer": {"developer"},
        "viewer": {"viewer"},
    }


def test_a_role_without_a_mark_in_a_row_is_refused() -> None:
    assert PermissionRow("nothing").reach("owner") == ""
    assert [name for name, row in TABLE.items() if row.signed_in] == ["account:use"]


def test_the_table_has_a_row_for_each_permission() -> None:
    assert tuple(TABLE) == get_args(Permission)
    assert set(RANKS) == set(ROLES) < set(COLUMNS)


def test_owners_and_admins_reach_the_whole_organization_or_nothing() -> None:
    assert {reach_of(role, name) for role in ("owner", "admin") for name in TABLE} == {"", "all"}


def test_a_role_without_keys_reads_no_keys_and_no_requests() -> None:
    for role in (role for role in ROLES if not reach_of(role, "keys:use")):
        assert not [name for name in TABLE if name.startswith(("keys:", "logs:")) and reach_of(role, name)], role
