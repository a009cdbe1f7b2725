import json

import gevent
import pytest

from gateway.accounts import audit


def record(company, count: int) -> int:
    """Add `count` entries beside those of the company's making; the number of the newest."""
    for number in range(count):
        company.database.write(lambda number=number: audit.append("test", f"s{number}", actor="me", at_us=number))
    return audit.list_entries(company.database)[0].seq


def test_an_untouched_trail_verifies(company) -> None:
    last = record(company, 5)
    assert audit.verify(company.database) == (last, [])


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit SET actor = 'someone else' WHERE seq = 5",
        "UPDATE audit SET at = at + 1 WHERE seq = 5",
        "UPDATE audit SET hash = previous_hash WHERE seq = 5",
        "DELETE FROM audit WHERE seq = 5",
        "DELETE FROM audit WHERE seq >= 5",
        "DELETE FROM audit",
        "UPDATE audit SET seq = 100 WHERE seq = 5",
        "UPDATE audit_head SET seq = 4",
    ],
)
def test_every_tampering_shows(company, tampering: str) -> None:
    record(company, 5)
    company.database.write(lambda: company.database.execute(tampering))
    assert audit.verify(company.database)[1]


def test_appends_at_once_make_one_chain(company) -> None:
    before = record(company, 1)
    writers = [gevent.spawn(record, company, 5) for _ in range(4)]
    gevent.joinall(writers, timeout=20, raise_error=True)
    assert audit.verify(company.database) == (before + 20, [])


def test_an_entry_goes_with_its_change_or_not_at_all(company) -> None:
    before = record(company, 1)

    def fail() -> None:
        audit.append("test", "lost", actor="me", at_us=1)
        raise LookupError

    with pytest.raises(LookupError):
        company.database.write(fail)
    assert audit.verify(company.database) == (before, [])


def test_entries_are_paged_newest_first_and_by_organization(company) -> None:
    last = record(company, 3)
    page = audit.list_entries(company.database, limit=2)
    assert [entry.seq for entry in page] == [last, last - 1]
    assert audit.list_entries(company.database, limit=1, before=last - 1)[0].seq == last - 2
    own = audit.list_entries(company.database, company.organization_id)
    assert {entry.action for entry in own} == {"organization.create", "project.create", "member.create"}


def test_a_change_of_many_megabytes_leaves_a_short_entry_that_proves_it(company) -> None:
    """Size and digest of what was set stand for it: a loop of large changes must not fill the store."""
    large = {"policy": "x" * 3_000_000, "name": "short"}
    company.database.write(
        lambda: audit.append("organization.update_policy", "org_1", actor="a", at_us=1, detail=large)
    )
    entry = audit.list_entries(company.database, limit=1)[0]
    detail = json.loads(entry.detail)
    assert len(entry.detail) < 500 and detail["name"] == "short"
    assert detail["policy"]["bytes"] == 3_000_002 and len(detail["policy"]["sha256"]) == 64
    assert audit.verify(company.database)[1] == []


def test_others_have_their_turn_while_the_trail_is_walked(company, monkeypatch) -> None:
    """The whole of it was read and hashed in one go: seconds of the event loop for a few hundred thousand changes."""
    monkeypatch.setattr(audit, "PAGE", 2)
    last = record(company, 20)
    turns: list[None] = []
    neighbour = gevent.spawn(lambda: [turns.append(gevent.sleep(0)) for _ in range(1000)])
    assert audit.verify(company.database) == (last, [])
    neighbour.kill()
    assert len(turns) >= last // 2 - 1
