import pytest
from gevent.pool import Pool
from support.management import House


def make(house, who, **more):
    """Status, and code of the refusal."""
    body = {"description": "CI", "projectId": who.project_id, **more}
    status, answer = house.call("POST", "/keys/api", who, body)
    return status if status == 200 else f"{status} {answer['code']}"


def caps_of(who) -> str:
    return f"/orgs/{who.organization_id}/key-caps"


@pytest.fixture
def root(house) -> str:
    return house.open(next(iter(house.services.management.operators())))


def test_an_installation_has_no_caps_unless_they_are_set(shared_house) -> None:
    owner = shared_house["acme owner"]
    shown = shared_house.ok("GET", caps_of(owner), owner)["keyCaps"]
    assert (shown["maxKeys"], shown["maxKeysPerMember"]) == (None, None) and shown["currentCount"] >= 4
    assert "planLimits" not in shared_house.ok("GET", "/keys/api", owner)


def test_keys_beyond_the_organizations_cap_are_neither_made_nor_activated(house, root) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    assert house.ok("PATCH", caps_of(owner), root, {"maxKeys": 5})["keyCaps"]["own"] == {
        "maxKeys": 5,
        "maxKeysPerMember": None,
    }
    path = f"/keys/api/{dev.key.info.id}"
    house.ok("PATCH", path, dev, {"status": "inactive"})
    assert [make(house, dev), make(house, owner), make(house, owner)] == [200, 200, "400 key_cap_reached"]
    assert house.refused("PATCH", path, dev, {"status": "active"}) == "400 key_cap_reached"
    assert house.ok("GET", "/keys/api", owner)["planLimits"] == {"currentCount": 5, "maxKeys": 5, "plan": "self-hosted"}
    house.ok("DELETE", f"/keys/api/{owner.key.info.id}", owner)
    house.ok("PATCH", path, dev, {"status": "active"})


def test_a_members_cap_binds_each_member_alone(house, root) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    house.ok("PATCH", caps_of(owner), root, {"maxKeysPerMember": 2})
    assert [make(house, dev), make(house, dev), make(house, owner)] == [200, "400 key_cap_reached", 200]
    assert house.ok("GET", "/keys/api", dev)["planLimits"]["currentCount"] == 2


def test_expired_keys_take_no_room(house, root) -> None:
    dev = house["acme developer"]
    house.ok("PATCH", caps_of(dev), root, {"maxKeysPerMember": 1})
    database = house.services.store.database
    database.write(lambda: database.execute("UPDATE api_key SET expires_at = 1 WHERE id = ?", (dev.key.info.id,)))
    assert make(house, dev) == 200
    later = {"status": "active", "expiresAt": "2099-01-01T00:00:00Z"}
    assert house.refused("PATCH", f"/keys/api/{dev.key.info.id}", dev, later) == "400 key_cap_reached"


def test_many_at_once_do_not_pass_the_cap(house, root) -> None:
    owner = house["acme owner"]
    house.ok("PATCH", caps_of(owner), root, {"maxKeys": 7})
    told = Pool(12).map(lambda _: make(house, owner), range(12))
    assert told.count(200) == 3 and told.count("400 key_cap_reached") == 9


def test_the_installations_caps_hold_where_the_organization_has_none_of_its_own(make_house) -> None:
    with make_house(GATEWAY_LIMITS_MAX_MEMBER_KEYS="1") as gateway:
        house = House(gateway)
        root, dev = house.open(next(iter(house.services.management.operators()))), house["acme developer"]
        assert make(house, dev) == "400 key_cap_reached"
        house.ok("PATCH", caps_of(dev), root, {"maxKeysPerMember": 0})
        assert make(house, dev) == 200
        house.ok("PATCH", caps_of(dev), root, {"maxKeysPerMember": None})
        assert make(house, dev) == "400 key_cap_reached"


@pytest.mark.parametrize("given", [{}, {"maxKeys": -1}, {"maxKeys": "5"}, {"max": 5}], ids=str)
def test_only_who_runs_the_installation_sets_proper_caps(house, root, given) -> None:
    owner = house["acme owner"]
    assert house.refused("PATCH", caps_of(owner), owner, {"maxKeys": 100}) == "403 permission_denied"
    assert house.refused("PATCH", caps_of(owner), root, given).startswith("400 ")
