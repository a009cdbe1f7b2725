import pytest
from support.limits import set_rate_limit

from gateway.metering.usage_table import raw_id

KIND = {"requestsPerMinute": "requests", "tokensPerMinute": "tokens", "concurrentRequests": "concurrency"}


def of_key(who) -> str:
    return f"/keys/api/{who.key.info.id}/rate-limits"


def of_project(who) -> str:
    return f"/projects/{who.project_id}/rate-limits"


def test_there_are_no_rate_limits_by_default(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    nothing = {"limit": None, "operatorLimit": None, "inForce": None, "used": 0}
    for path in (of_key(owner), of_project(owner)):
        assert shared_tenants.ok("GET", path, owner) == {"rateLimits": dict.fromkeys(KIND, nothing)}


@pytest.mark.parametrize("path", [of_key, of_project])
def test_owners_and_admins_set_them_for_what_is_their_own(tenants, path) -> None:
    developer = tenants["acme developer"]
    for role, amount in (("owner", 60), ("admin", 30)):
        who = tenants[f"acme {role}"]
        shown = tenants.ok("PATCH", path(developer), who, {"requestsPerMinute": amount})["rateLimits"]
        assert shown["requestsPerMinute"] == {"limit": amount, "operatorLimit": None, "inForce": amount, "used": 0}
        assert shown == tenants.ok("GET", path(developer), who)["rateLimits"]
    assert tenants.refused("PATCH", path(developer), developer, {"requestsPerMinute": 99}) == "403 permission_denied"
    for method, body in (("GET", None), ("PATCH", {"requestsPerMinute": 1})):
        assert tenants.refused(method, path(developer), tenants["rival owner"], body) == "403 permission_denied"
    gone = tenants.ok("PATCH", path(developer), tenants["acme owner"], {"requestsPerMinute": None})["rateLimits"]
    assert gone["requestsPerMinute"]["inForce"] is None


def test_developers_see_those_of_their_own_keys_alone(shared_tenants) -> None:
    developer, colleague = shared_tenants["acme developer"], shared_tenants["acme colleague"]
    assert shared_tenants.ok("GET", of_key(developer), developer)
    assert shared_tenants.refused("GET", of_key(colleague), developer) == "403 permission_denied"
    assert shared_tenants.refused("GET", of_project(developer), developer) == "403 permission_denied"


def test_they_are_never_above_the_operators(tenants) -> None:
    owner, limits = tenants["acme owner"], tenants.services.billing.rate_limits
    set_rate_limit(limits, "key", "*", "tokens", 1000)
    set_rate_limit(limits, "project", owner.project_id, "requests", 20)
    assert tenants.refused("PATCH", of_key(owner), owner, {"tokensPerMinute": 1001}) == "400 rate_limit_above_operators"
    both = {"requestsPerMinute": 21, "tokensPerMinute": 5}
    assert tenants.refused("PATCH", of_project(owner), owner, both) == "400 rate_limit_above_operators"
    assert tenants.ok("GET", of_project(owner), owner)["rateLimits"]["tokensPerMinute"]["limit"] is None
    tenants.ok("PATCH", of_key(owner), owner, {"tokensPerMinute": 800})
    # A limit that the operator lowers later still applies.
    set_rate_limit(limits, "key", owner.key.info.id, "tokens", 700)
    shown = tenants.ok("GET", of_key(owner), owner)["rateLimits"]["tokensPerMinute"]
    assert shown == {"limit": 800, "operatorLimit": 700, "inForce": 700, "used": 0}
    assert [rule.amount for rule in limits.rules([("key", owner.key.info.id)])] == [700]


def test_they_apply_to_the_next_request_and_usage_is_reported(tenants) -> None:
    owner = tenants["acme owner"]
    tenants.services.billing.ledger.grant(owner.organization_id, 1_000_000_000, "test")
    tenants.ok("PATCH", of_key(owner), owner, {"requestsPerMinute": 2})
    body = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    told = [tenants.call("POST", "/v1/chat/completions", owner.key.token, body)[0] for _ in range(3)]
    assert told == [200, 200, 429]
    tenants.services.store.journal.flush(60)
    shown = tenants.ok("GET", of_key(owner), owner)["rateLimits"]
    database, own = tenants.services.store.database, raw_id(owner.key.info.id)
    sql = "SELECT COUNT(*), SUM(input + cache_read + cache_write + output) FROM usage WHERE api_key = ?"
    rows, tokens = database.read(lambda: database.execute(sql, (own,)).fetchone())
    assert (shown["requestsPerMinute"]["used"], shown["tokensPerMinute"]["used"]) == (rows, tokens) == (2, tokens)
    assert tokens > 0 and tenants.ok("GET", of_project(owner), owner)["rateLimits"]["requestsPerMinute"]["used"] == 2


def test_each_change_is_in_the_audit_log(tenants) -> None:
    owner = tenants["acme owner"]
    tenants.ok("PATCH", of_key(owner), owner, {"concurrentRequests": 4})
    entries = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"]
    (entry,) = [entry for entry in entries if entry["action"] == "rate_limit.update"]
    assert entry["subject"] == owner.key.info.id and entry["actor"] == owner.user_id
    assert entry["detail"]["concurrency"] == 4 and entry["detail"]["own"] is True


@pytest.mark.parametrize(
    "given",
    [{}, {"requestsPerMinute": -1}, {"requestsPerMinute": "5"}, {"perMinute": 5}, {"tokensPerMinute": 1.5}],
    ids=str,
)
def test_invalid_amounts_are_refused(shared_tenants, given) -> None:
    owner = shared_tenants["acme owner"]
    assert shared_tenants.refused("PATCH", of_key(owner), owner, given).startswith("400 ")
