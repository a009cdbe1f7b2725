import os
import threading

import pytest

from bench import workers


@pytest.mark.parametrize(("rates", "status"), [([(10.0, 18.0), (10.0, 17.0), (10.0, 9.0)], 0), ([(10.0, 16.9)], 1)])
def test_the_median_over_the_rounds_decides(monkeypatch, capsys, rates, status):
    monkeypatch.setattr(workers, "build", lambda: None)
    monkeypatch.setattr(workers, "measure", lambda _: rates)
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert workers.main([]) == status
    printed = capsys.readouterr().out
    assert "4 cores" in printed and ("MISSED" in printed) is bool(status)


def test_a_machine_with_too_few_cores_measures_nothing_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(workers, "measure", lambda _: pytest.fail("it was measured"))
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: {0, 1})
    assert workers.main([]) == 0
    assert "not measured; this machine has 2 cores, and 3 are needed" in capsys.readouterr().out


def test_threads_are_moved_to_the_given_cores(monkeypatch):
    moved: dict[int, list[int]] = {}
    monkeypatch.setattr(workers.os, "sched_setaffinity", moved.__setitem__)
    workers.spread(os.getpid(), [0])
    assert moved[threading.get_native_id()] == [0]
