import argparse

import pytest

from bench import pairs, residence
from bench.processes import BenchError


def run_with(monkeypatch, ratios: list[float]) -> int:
    monkeypatch.setattr(pairs, "build", lambda: None)
    monkeypatch.setattr(
        pairs, "measure", lambda name, _: {pair: [(ratio, 1.0) for ratio in ratios] for pair in pairs.PAIRS[name]}
    )
    return pairs.main(["--only", "prompt"])


@pytest.mark.parametrize(("ratios", "status"), [([9.0, 1.7, 1.0], 0), ([1.0, 1.71, 1.8], 1)])
def test_the_median_over_the_rounds_decides(monkeypatch, capsys, ratios, status):
    assert run_with(monkeypatch, ratios) == status
    assert ("MISSED" in capsys.readouterr().out) is bool(status)


def test_each_side_of_a_pair_is_measured_in_each_round(monkeypatch):
    figures = {"SQLite": 100.0, "PostgreSQL": 130.0}
    sides = {name: (argparse.Namespace(name=name, port=1), "") for name in figures}
    order: list[str] = []

    def load(phase, target, *_):
        order.append(target.name)
        return {"cpu_us": figures[target.name], "whole": {"p50": figures[target.name]}}

    direct = argparse.Namespace(port=1)
    monkeypatch.setattr(pairs, "load", load)
    monkeypatch.setattr(pairs, "run_load", lambda *_: {"whole": {"p50": 40.0}})
    monkeypatch.setattr(pairs, "check_answers", lambda _: None)
    monkeypatch.setattr(pairs, "start_targets", lambda *_: pairs.contextlib.nullcontext([direct]))
    monkeypatch.setitem(pairs.STARTS, "postgresql", lambda *_: pairs.contextlib.nullcontext(sides))
    cpu, latency = pairs.measure("postgresql", argparse.Namespace(port=1, rounds=2, seconds=1)).values()
    assert cpu == [(130.0, 100.0)] * 2 and latency == [(90.0, 60.0)] * 2
    (pair, *_) = pairs.PAIRS["postgresql"]
    assert "SQLite 100 µs, PostgreSQL 130 µs: × 1.30" in pairs.write_line(pair, 1.3, cpu)
    assert order[2:6] == ["PostgreSQL", "SQLite"] * 2


@pytest.mark.parametrize(("value", "status"), [(0.5, 0), (0.51, 1)])
def test_a_figure_above_its_limit_fails_the_run(monkeypatch, value, status):
    monkeypatch.setattr(residence, "build", lambda: None)
    monkeypatch.setattr(residence, "measure", lambda *_: [("idle worker, % of a core", value)])
    assert residence.main([]) == status


def test_too_few_open_files_are_reported(monkeypatch):
    monkeypatch.setattr(residence.resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(BenchError, match="at most 100 files"):
        residence.allow_files(200)
