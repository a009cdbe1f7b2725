import gevent
import pytest

from gateway.accounts import keys
from gateway.accounts.key_caps import KeyCaps, OwnCaps, find_cap_usage, find_caps, set_caps
from gateway.errors import InvalidRequest, NotFound


def create(company, caps: KeyCaps) -> bool:
    """Whether one more key could be made."""
    by = {"actor": "operator", "caps": caps}
    try:
        keys.create(company.database, company.control, company.secrets.hash_keys, company.draft(), **by)
    except InvalidRequest as error:
        assert error.code == "key_cap_reached"
        return False
    return True


def test_creations_at_the_same_time_never_pass_the_cap(company) -> None:
    jobs = [gevent.spawn(create, company, KeyCaps(total=5)) for _ in range(12)]
    assert sum(job.get(timeout=30) for job in jobs) == 5
    assert len(keys.list_keys(company.database)) == 5


def test_an_organizations_own_caps_win_and_zero_lifts_them(company) -> None:
    at = (company.database, company.control, company.organization_id)
    set_caps(*at, OwnCaps(total=1), actor="operator")
    assert [create(company, KeyCaps(total=9)) for _ in range(2)] == [True, False]
    set_caps(*at, OwnCaps(total=0), actor="operator")
    assert create(company, KeyCaps(total=1))
    set_caps(*at, OwnCaps(), actor="operator")
    assert not create(company, KeyCaps(total=1)) and find_caps(company.database, company.organization_id) == OwnCaps()


def test_the_cap_shown_is_the_one_reached_first(company) -> None:
    create(company, KeyCaps())
    place = (company.database, company.organization_id, company.member_id)
    assert find_cap_usage(*place, KeyCaps(total=9, member=3)).maximum == 3
    assert find_cap_usage(*place, KeyCaps(total=2, member=9)).maximum == 2
    assert find_cap_usage(*place, KeyCaps()).maximum == 0


@pytest.mark.parametrize("caps", [OwnCaps(total=-1), OwnCaps(member=1_000_001)])
def test_an_impossible_cap_is_refused(small_company, caps) -> None:
    with pytest.raises(InvalidRequest):
        set_caps(small_company.database, small_company.control, small_company.organization_id, caps, actor="operator")
    with pytest.raises(NotFound):
        set_caps(small_company.database, small_company.control, "org_nobody", OwnCaps(), actor="operator")
