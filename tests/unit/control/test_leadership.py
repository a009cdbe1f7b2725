import pytest

from gateway.control.leadership import TERM_DURATION_S, Leadership
from gateway.control.version import Control


@pytest.fixture
def candidate(database_url, open_store, clock):
    candidates = []

    def make():
        store = open_store(database_url)
        control = Control(store, clock, node=f"n{len(candidates)}")
        control.start()
        candidates.append((Leadership(store, control, clock), control))
        return candidates[-1][0]

    yield make
    for leadership, control in candidates:
        leadership.stop()
        control.stop()


def test_one_leads_and_another_takes_over_once_it_leaves(candidate):
    first, second = candidate(), candidate()
    first.campaign()
    second.campaign()
    assert first.leading() and not second.leading()
    first.stop()
    second.campaign()
    assert second.leading() and second.epoch > 1 and not first.leading()


def test_a_leader_that_cannot_renew_knows_it(candidate, clock):
    leadership = candidate()
    leadership.campaign()
    clock.advance(TERM_DURATION_S + 0.1)
    assert not leadership.leading()


def test_a_leader_that_was_overtaken_knows_it(candidate, database):
    leadership = candidate()
    leadership.campaign()
    assert leadership.leading()
    database.write(lambda: database.execute("UPDATE leader SET epoch = epoch + 1, worker = 0"))
    leadership.campaign()
    assert not leadership.leading()
