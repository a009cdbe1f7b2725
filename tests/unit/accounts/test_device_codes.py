import gevent
import pytest

from gateway.accounts import device_codes
from gateway.accounts.device_codes import Devices, read_user_code
from gateway.accounts.members import list_members
from gateway.accounts.sessions import Sessions
from gateway.callers.throttle import TABLE_SHARES
from gateway.errors import Conflict, NotFound

CLIENT = "llmgateway-cli"
PEER = "203.0.113.7"


@pytest.fixture
def sessions(company) -> Sessions:
    return Sessions(company.database, company.secrets)


@pytest.fixture
def devices(company, sessions) -> Devices:
    return Devices(company.database, company.secrets, sessions)


@pytest.fixture
def user_id(company) -> str:
    return list_members(company.database, company.organization_id)[0].user_id


def test_an_approved_code_gives_one_session_and_no_second_one(devices, sessions, user_id) -> None:
    grant = devices.start(CLIENT, PEER)
    assert devices.collect(grant.device_code, CLIENT)[0] == "pending"
    devices.decide(grant.user_code, user_id, True)
    status, session = devices.collect(grant.device_code, CLIENT)
    assert status == "approved" and sessions.find(session.token).user_id == user_id
    assert devices.collect(grant.device_code, CLIENT) == ("expired", None)


def test_one_of_many_parallel_polls_gets_the_session(devices, user_id) -> None:
    grant = devices.start(CLIENT, PEER)
    devices.decide(grant.user_code, user_id, True)
    tries = [gevent.spawn(devices.collect, grant.device_code, CLIENT) for _ in range(8)]
    statuses = sorted(one.get()[0] for one in tries)
    assert statuses == ["approved", *["expired"] * 7]


def test_a_denied_code_gives_nothing(devices, user_id) -> None:
    grant = devices.start(CLIENT, PEER)
    devices.decide(grant.user_code, user_id, False)
    assert devices.collect(grant.device_code, CLIENT) == ("denied", None)


def test_a_code_is_decided_once(devices, user_id) -> None:
    grant = devices.start(CLIENT, PEER)
    devices.decide(grant.user_code, user_id, False)
    with pytest.raises(Conflict):
        devices.decide(grant.user_code, user_id, True)


def test_polling_without_pause_gets_slow_down(devices) -> None:
    grant = devices.start(CLIENT, PEER)
    polls = [devices.collect(grant.device_code, CLIENT)[0] for _ in range(3)]
    assert polls == ["pending", "slow_down", "slow_down"]


def test_an_old_code_is_over(devices, company, user_id) -> None:
    grant = devices.start(CLIENT, PEER)
    company.database.write(lambda: company.database.execute("UPDATE device_code SET expires_at = 1"))
    assert devices.collect(grant.device_code, CLIENT) == ("expired", None)
    with pytest.raises(NotFound):
        devices.decide(grant.user_code, user_id, True)


def test_the_code_of_another_client_is_unknown(devices) -> None:
    assert devices.collect(devices.start(CLIENT, PEER).device_code, "another") == ("expired", None)


def test_a_user_code_may_be_typed_in_any_way(devices, user_id) -> None:
    grant = devices.start(CLIENT, PEER)
    typed = f" {grant.user_code.lower().replace('-', ' ')} "
    assert read_user_code(typed) == grant.user_code
    assert devices.find(typed).status == "pending"


def waits(devices: Devices, device_code: str) -> bool:
    return devices.collect(device_code, CLIENT)[0] in ("pending", "slow_down")


@pytest.fixture
def small_table(monkeypatch) -> int:
    monkeypatch.setattr(device_codes, "MAX_WAITING", 200)
    return 200


def test_one_network_has_a_share_of_the_codes_and_replaces_its_own(devices, small_table) -> None:
    mine = devices.start(CLIENT, "198.51.100.9")
    theirs = [devices.start(CLIENT, f"2001:db8:1:{number:x}::{number:x}") for number in range(3 * small_table)]
    share = small_table // TABLE_SHARES
    assert [waits(devices, grant.device_code) for grant in theirs] == [False] * (len(theirs) - share) + [True] * share
    assert waits(devices, mine.device_code)


def test_a_flood_from_many_networks_shuts_nobody_out(devices, company, small_table) -> None:
    mine = [devices.start(CLIENT, f"198.51.{number}.9") for number in range(20)]
    for number in range(5 * small_table):
        devices.start(CLIENT, f"203.0.{number % 60}.{number % 250}")
    mine += [devices.start(CLIENT, f"192.0.{number}.9") for number in range(20)]
    assert all(waits(devices, grant.device_code) for grant in mine)
    count = company.database.read(lambda: company.database.execute("SELECT COUNT(*) FROM device_code").fetchone()[0])
    assert count <= small_table


def test_approved_codes_do_not_give_way(devices, user_id, small_table) -> None:
    grant = devices.start(CLIENT, PEER)
    devices.decide(grant.user_code, user_id, True)
    for _ in range(2 * small_table):
        devices.start(CLIENT, PEER)
    assert devices.collect(grant.device_code, CLIENT)[0] == "approved"
