import pytest

from bench import tracing


@pytest.fixture
def clock(monkeypatch):
    moment = [100.0]
    monkeypatch.setattr(tracing.time, "monotonic", lambda: moment[0])
    return moment


def test_a_lone_request_is_traced_among_others_that_come_one_by_one(clock):
    sparse = tracing.Sparse(0.01)

    def come(after_s):
        clock[0] += after_s
        return sparse.note()

    assert not any([come(0.001) for _ in range(100)]), "a loaded gateway"
    assert not any([come(0.02) for _ in range(tracing.IN_A_ROW - 1)]), "one pause of a loaded machine is no rest"
    assert come(0.02)
    assert not come(0.001)


def test_without_a_distance_every_warm_request_will_do(clock):
    assert tracing.Sparse(0.0).note()
