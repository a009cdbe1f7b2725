import pytest

from gateway.accounts.members import list_members
from gateway.accounts.sessions import Sessions
from gateway.callers.models import Session
from gateway.errors import Forbidden, Unauthenticated

DAY_S = 86_400


@pytest.fixture
def sessions(company) -> Sessions:
    return Sessions(company.database, company.secrets)


@pytest.fixture
def user_id(company) -> str:
    return list_members(company.database, company.organization_id)[0].user_id


def test_a_token_finds_its_user_and_is_stored_as_a_hash_only(sessions, user_id, company) -> None:
    made = sessions.open(user_id)
    assert made.token.startswith("llmgses_") and len(made.token) == 48
    assert sessions.find(made.token).email == "owner@example.com"
    row = company.database.read(lambda: Session.get())
    assert made.token not in (row.token_hash, row.id) and len(row.token_hash) == 64


def test_a_closed_session_is_refused_at_once(sessions, user_id) -> None:
    made = sessions.open(user_id)
    sessions.close(made.info.id, actor=user_id)
    with pytest.raises(Unauthenticated):
        sessions.find(made.token)


def test_a_session_ends_after_thirty_unused_days(sessions, user_id, clock, company) -> None:
    made = sessions.open(user_id)
    _age(company, made.info.id, 30 * DAY_S + 1)
    with pytest.raises(Unauthenticated):
        sessions.find(made.token)


def test_use_extends_a_session_at_most_once_a_day(sessions, user_id, company) -> None:
    made = sessions.open(user_id)
    assert not sessions.find(made.token).refreshed
    _age(company, made.info.id, DAY_S + 1)
    extended = sessions.find(made.token)
    assert extended.refreshed and extended.expires_at_us > made.info.expires_at_us - 1_000_000
    assert not sessions.find(made.token).refreshed


@pytest.mark.parametrize("token", ["", "llmgses_unknown_unknown_unknown", "x" * 300, "with space in it", "naïve-token"])
def test_invalid_session_tokens_are_refused(sessions, token) -> None:
    with pytest.raises(Unauthenticated):
        sessions.find(token)


def test_a_deactivated_account_is_refused_by_name(sessions, user_id, company) -> None:
    made = sessions.open(user_id)
    company.database.write(lambda: company.database.execute("UPDATE \"user\" SET status = 'inactive'"))
    with pytest.raises(Forbidden) as caught:
        sessions.find(made.token)
    assert caught.value.code == "account_deactivated"


def test_the_other_sessions_end_on_request(sessions, user_id) -> None:
    kept, other = sessions.open(user_id), sessions.open(user_id)
    assert sessions.close_others(user_id, kept.info.id) == 1
    assert sessions.find(kept.token)
    with pytest.raises(Unauthenticated):
        sessions.find(other.token)


def _age(company, session_id: str, seconds: int) -> None:
    """As if the session had been opened so long ago."""
    by = seconds * 1_000_000
    sql = "UPDATE session SET refreshed_at = refreshed_at - ?, expires_at = expires_at - ? WHERE id = ?"
    company.database.write(lambda: company.database.execute(sql, (by, by, session_id)))


def test_a_user_who_signs_in_again_and_again_keeps_the_newest_sessions(sessions, user_id, company, monkeypatch) -> None:
    monkeypatch.setattr("gateway.accounts.sessions.MAX_SESSIONS", 3)
    made = [sessions.open(user_id) for _ in range(5)]
    assert company.database.read(lambda: Session.select().count()) == 3
    assert sessions.find(made[-1].token).id == made[-1].info.id
    with pytest.raises(Unauthenticated):
        sessions.find(made[0].token)
