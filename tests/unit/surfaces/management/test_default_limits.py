"""The limits that new organizations begin with, from the configuration."""

from collections.abc import Callable

import pytest

from gateway.accounts.spending_limits import SpendingLimits
from gateway.admin.default_limits import find_limit_problems, read_default_limit
from gateway.limits.limit_rules import Subject

USERS = "users 2 --subject 'each user' --period day --timezone Europe/Berlin --action warn@80 --action refuse@100"
MODELS = "opus 500 --subject model=claude-opus-* --period 1mo"
WRONG = {
    "users": "write its id",
    "users two --subject 'each user'": "amount",
    "users 2": "has a subject",
    "users 2 --subject planet=mars": "is no subject",
    "users 2 --subject team=team_1": "has no team team_1",
    "users 2 --subject 'each user' --period": "each option has a value",
    "users 2 --subject 'each user' --periods day": "is no option",
    "users 2 --subject 'each user' --period 1y": "not a period",
    "users 2 --subject 'each user' --timezone UTC": "needs a period",
    "users 2 --subject 'each user' --action shout@80": "is no action",
    "users 2 --subject 'each user": "quotation",
    "users -1 --subject 'each user'": "",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_limit_is_a_mistake_of_the_configuration(text: str) -> None:
    [problem] = find_limit_problems([text])
    assert WRONG[text] in problem


def test_limits_are_written_like_those_of_the_command() -> None:
    name, draft = read_default_limit(USERS)
    assert (name, draft.subjects, draft.period) == ("users", (Subject("user", each=True),), "day@Europe/Berlin")
    assert list(map(str, draft.actions)) == ["warn@80", "refuse@100"]
    assert find_limit_problems([USERS, MODELS]) == []
    assert find_limit_problems([MODELS, MODELS]) == ["opus: two limits have this id"]


def test_new_organizations_begin_with_the_limits_and_their_owners_change_them(
    open_tenants: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_tenants() as tenants:
        owner = tenants["acme owner"]
        before = tenants.ok("GET", f"/orgs/{owner.organization_id}/limits", owner)["limits"]
        management = tenants.services.management
        monkeypatch.setattr(management, "_defaults", type(management._defaults)(limits=(USERS, MODELS)))
        made = tenants.ok("POST", "/orgs", owner, {"name": "Second"})["organization"]
        path = f"/orgs/{made['id']}/limits"
        assert [one["id"] for one in tenants.ok("GET", path, owner)["limits"]] == ["opus", "users"]
        assert all(one["deletable"] for one in tenants.ok("GET", path, owner)["limits"])
        tenants.ok("PUT", f"{path}/users", owner, {"subjects": ["each user"], "amount": "9"})
        tenants.ok("DELETE", f"{path}/opus", owner)
        assert before == tenants.ok("GET", f"/orgs/{owner.organization_id}/limits", owner)["limits"]
        stores = tenants.services.store.database, tenants.services.store.control
        assert [info.rule.name for info in SpendingLimits(*stores).list_limits(made["id"])] == ["users"]
