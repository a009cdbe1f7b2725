import pytest
from gevent.pool import Pool
from support.management import Tenants


def make(tenants, who, **more):
    """Status, and code of the refusal."""
    body = {"description": "CI", "projectId": who.project_id, **more}
    status, answer = tenants.call("POST", "/keys/api", who, body)
    return status if status == 200 else f"{status} {answer['code']}"


def caps_of(who) -> str:
    return f"/orgs/{who.organization_id}/key-caps"


@pytest.fixture
def root(tenants) -> str:
    return tenants.open_operator()


def test_an_installation_has_no_caps_unless_they_are_set(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    shown = shared_tenants.ok("GET", caps_of(owner), owner)["keyCaps"]
    assert (shown["maxKeys"], shown["maxKeysPerMember"]) == (None, None) and shown["currentCount"] >= 4
    assert "planLimits" not in shared_tenants.ok("GET", "/keys/api", owner)


def test_keys_beyond_the_organizations_cap_are_neither_made_nor_activated(tenants, root) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    assert tenants.ok("PATCH", caps_of(owner), root, {"maxKeys": 5})["keyCaps"]["own"] == {
        "maxKeys": 5,
        "maxKeysPerMember": None,
    }
    path = f"/keys/api/{dev.key.info.id}"
    tenants.ok("PATCH", path, dev, {"status": "inactive"})
    assert [make(tenants, dev), make(tenants, owner), make(tenants, owner)] == [200, 200, "400 key_cap_reached"]
    assert tenants.refused("PATCH", path, dev, {"status": "active"}) == "400 key_cap_reached"
    assert tenants.ok("GET", "/keys/api", owner)["planLimits"] == {
        "currentCount": 5,
        "maxKeys": 5,
        "plan": "self-hosted",
    }
    tenants.ok("DELETE", f"/keys/api/{owner.key.info.id}", owner)
    tenants.ok("PATCH", path, dev, {"status": "active"})


def test_a_members_cap_binds_each_member_alone(tenants, root) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    tenants.ok("PATCH", caps_of(owner), root, {"maxKeysPerMember": 2})
    assert [make(tenants, dev), make(tenants, dev), make(tenants, owner)] == [200, "400 key_cap_reached", 200]
    assert tenants.ok("GET", "/keys/api", dev)["planLimits"]["currentCount"] == 2


def test_expired_keys_take_no_room(tenants, root) -> None:
    dev = tenants["acme developer"]
    tenants.ok("PATCH", caps_of(dev), root, {"maxKeysPerMember": 1})
    database = tenants.services.store.database
    database.write(lambda: database.execute("UPDATE api_key SET expires_at = 1 WHERE id = ?", (dev.key.info.id,)))
    assert make(tenants, dev) == 200
    later = {"status": "active", "expiresAt": "2099-01-01T00:00:00Z"}
    assert tenants.refused("PATCH", f"/keys/api/{dev.key.info.id}", dev, later) == "400 key_cap_reached"


def test_many_at_once_do_not_pass_the_cap(tenants, root) -> None:
    owner = tenants["acme owner"]
    tenants.ok("PATCH", caps_of(owner), root, {"maxKeys": 7})
    told = Pool(12).map(lambda _: make(tenants, owner), range(12))
    assert told.count(200) == 3 and told.count("400 key_cap_reached") == 9


def test_the_installations_caps_apply_to_organizations_without_caps(make_tenants) -> None:
    with make_tenants(GATEWAY_LIMITS_MAX_MEMBER_KEYS="1") as gateway:
        tenants = Tenants(gateway)
        root = tenants.open_operator()
        dev = tenants["acme developer"]
        assert make(tenants, dev) == "400 key_cap_reached"
        tenants.ok("PATCH", caps_of(dev), root, {"maxKeysPerMember": 0})
        assert make(tenants, dev) == 200
        tenants.ok("PATCH", caps_of(dev), root, {"maxKeysPerMember": None})
        assert make(tenants, dev) == "400 key_cap_reached"


@pytest.mark.parametrize("given", [{}, {"maxKeys": -1}, {"maxKeys": "5"}, {"max": 5}], ids=str)
def test_only_who_runs_the_installation_sets_proper_caps(tenants, root, given) -> None:
    owner = tenants["acme owner"]
    assert tenants.refused("PATCH", caps_of(owner), owner, {"maxKeys": 100}) == "403 permission_denied"
    assert tenants.refused("PATCH", caps_of(owner), root, given).startswith("400 ")
