import pytest

from bench import tracing
from gateway import money


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


def test_the_modules_of_the_gateway_that_run_meanwhile_are_counted():
    counter = tracing.ModuleCounter()
    counter.begin()
    money.format_usd(98_765_432_101)  # amounts that no other test formats: results are cached
    money.format_usd(98_765_432_102)
    listed = counter.end().write()
    money.format_usd(98_765_432_103)
    assert counter.end().write() == listed and listed.startswith("1 modules\n")
    assert listed.endswith(" gateway.money\n") and int(listed.split()[2]) >= 2
