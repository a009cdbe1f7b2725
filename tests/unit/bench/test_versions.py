import argparse
from pathlib import Path

import pytest

from bench import versions
from bench.processes import BenchError
from bench.run import PHASES

PLAIN = PHASES[0]
GATEWAYS = [argparse.Namespace(port=port, process=argparse.Namespace(pid=port)) for port in (1, 2)]
OPTIONS = argparse.Namespace(rounds=4, seconds=1.0)


def answer_all(monkeypatch, errors: int = 0) -> list[int]:
    """Let each gateway answer a hundred requests, with its port as the milliseconds of CPU; return the ports loaded."""
    loaded: list[int] = []
    used = {1: 0.0, 2: 0.0}

    def load(phase, target, seconds, folder):
        loaded.append(target.port)
        used[target.port] += target.port / 1e3
        return {"good": 100, "errors": errors, "whole": {"p50": 1.0}}

    monkeypatch.setattr(versions, "run_load", load)
    monkeypatch.setattr(versions, "thread_seconds", used.__getitem__)
    return loaded


def test_gateways_take_turns_and_change_their_order(monkeypatch, tmp_path):
    loaded = answer_all(monkeypatch)
    rounds = versions.measure(PLAIN, argparse.Namespace(port=9), GATEWAYS, OPTIONS, tmp_path)
    assert [[round(figure) for figure in figures] for figures in rounds] == [[10, 20]] * 4
    assert loaded == [1, 2] + [2, 1, 1, 2] * 2


def test_answers_that_are_not_good_fail_the_measurement(monkeypatch, tmp_path):
    answer_all(monkeypatch, errors=1)
    with pytest.raises(BenchError, match="1 answers were not good"):
        versions.measure(PLAIN, argparse.Namespace(port=9), GATEWAYS, OPTIONS, tmp_path)


def test_other_checkouts_are_shown_relative_to_the_first():
    text = versions.write_figures(PLAIN, [Path("/old"), Path("/new")], [[100.0, 90.0], [110.0, 99.0], [200.0, 160.0]])
    first, second = text.splitlines()
    assert first == "plain, CPU µs: /old: 110.0"
    assert second.startswith("plain, CPU µs: /new: 99.0, × 0.900 (0.800 to 0.900)")
