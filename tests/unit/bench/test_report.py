import os
import subprocess

import pytest

from bench import report, run
from bench.processes import cpu_seconds, pss_mb, tree
from bench.targets import write_request


def make_run(number: int, target: str, p50: int, **more) -> dict:
    times = {"count": 10, "p50": p50, "p90": p50, "p99": p50}
    none = {"count": 0, "p50": 0, "p90": 0, "p99": 0}
    base = {"round": number, "phase": "plain", "target": target, "paced": True, "good": 10, "errors": 0, "rps": 100.0}
    return {**base, "whole": times, "first": times, "delay": none, **more}


def test_added_time_is_relative_to_the_direct_run_of_the_same_round():
    runs = [make_run(0, "direct", 10), make_run(0, "gateway", 30), make_run(1, "direct", 500)]
    runs += [make_run(1, "gateway", 530), make_run(2, "direct", 20), make_run(2, "gateway", 45)]
    row = report.summarize(runs)["plain"]["gateway"]
    assert (row["added_p50"], row["p50"]) == (25, 45)


def test_one_slow_round_does_not_move_the_median():
    runs = [make_run(n, "direct", 10, cpu_us=cpu) for n, cpu in enumerate((50.0, 900.0, 52.0))]
    assert report.summarize(runs)["plain"]["direct"]["cpu_us"] == 52.0


def results_of(runs: list[dict]) -> dict:
    about = {"commit": "c", "python": "3", "packages": {}, "kernel": "k", "cpu": "x", "cores": 2}
    about |= {"pinned": True, "rounds": 1, "seconds": 1, "start_s": {"gateway": 0.5}}
    about |= {"load": 0.1, "peers": [], "left_out": {}}
    return {"about": about, "runs": runs, "phases": report.summarize(runs)}


@pytest.mark.parametrize(("cpu_us", "verdict"), [(60.0, "good"), (150.0, "as it must"), (151.0, "MISSED")])
def test_report_judges_the_gateway_by_its_aims(cpu_us, verdict):
    runs = [make_run(0, "direct", 10), make_run(0, "gateway", 30, cpu_us=cpu_us, core=0.9, pss_mb=70.0)]
    assert f"CPU µs a request: {cpu_us:g} (must 150, good 60): {verdict}" in report.write_text(results_of(runs))


def test_throughput_is_compared_only_with_a_peer_whose_core_was_the_limit():
    gateway = make_run(0, "gateway", 30, cpu_us=60.0, core=1.0, pss_mb=70.0)
    for core, told in ((0.99, True), (0.5, False)):
        peer = make_run(0, "nginx", 20, cpu_us=13.0, core=core, pss_mb=9.0)
        text = report.write_text(results_of([make_run(0, "direct", 10), peer, gateway]))
        assert "CPU µs × 4.62" in text
        assert ("rps ×" in text) is told


@pytest.mark.parametrize(("cpu_us", "verdict"), [(69.0, "good"), (90.0, "as it must"), (91.0, "MISSED")])
def test_a_run_fails_above_its_limit_relative_to_the_go_peer(cpu_us, verdict):
    runs = [make_run(0, "direct", 10), make_run(0, "ferrogw", 30, cpu_us=100.0, core=0.9)]
    results = results_of([*runs, make_run(0, "gateway", 30, cpu_us=cpu_us, core=0.9, per_commit=31.0)])
    assert f"(must 0.9, good 0.7): {verdict}" in report.write_text(results)
    assert report.misses_ratio(results) is (verdict == "MISSED")


def test_a_peer_that_cannot_keep_up_does_not_spoil_the_run():
    assert report.count_errors(results_of([make_run(0, "direct", 10), make_run(0, "litellm", 10, errors=3)])) == 0


def test_errors_are_counted_and_reported():
    results = results_of([make_run(0, "direct", 10, errors=3)])
    assert report.count_errors(results) == 3
    assert "3 answers were not good" in report.write_text(results)


@pytest.mark.parametrize(("per_commit", "fails"), [(31.0, False), (21.0, False), (20.0, True)])
def test_a_run_fails_where_a_third_fewer_requests_share_a_commit(per_commit, fails):
    runs = [make_run(0, "direct", 10), make_run(0, "gateway", 30, per_commit=per_commit, core=0.9)]
    results = results_of(runs)
    assert report.shares_too_few(results) is fails
    assert (f"{per_commit:g} requests share a commit" in report.write_text(results)) is fails


def test_a_run_on_a_machine_that_others_use_does_not_judge_commits():
    runs = [make_run(0, "direct", 10), make_run(0, "gateway", 30, per_commit=12.0, core=0.3)]
    assert not report.shares_too_few(results_of(runs))


def test_a_run_without_the_phase_of_32_connections_does_not_judge_commits():
    assert not report.shares_too_few(results_of([make_run(0, "direct", 10, phase="streams")]))


def test_processor_time_counts_children_that_ended():
    before = cpu_seconds(os.getpid())
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"], check=True)
    assert cpu_seconds(os.getpid()) > before


def test_tree_and_memory_hold_the_children():
    alone = pss_mb(os.getpid())
    with subprocess.Popen(["sleep", "30"]) as child:
        assert child.pid in tree(os.getpid())
        assert alone > 0
        child.kill()


def test_length_of_a_request_is_that_of_its_body():
    head, _, body = write_request(1234, "gap=5", True).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert b'"stream":true' in body


@pytest.mark.parametrize("arguments", [["--targets", "moon"], ["--phases", "x"], ["--rounds", "0"]])
def test_unknown_options_are_refused(arguments):
    with pytest.raises(SystemExit):
        run.read_options(arguments)
