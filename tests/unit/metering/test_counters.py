import pytest

from gateway.metering.counters import BUCKETS, Counters


@pytest.fixture
def counters(tmp_path):
    return Counters(tmp_path)


def test_counts_by_name_and_by_a_kept_counter_are_one_sum(counters):
    kept = counters.count("tokens_total", ("p", "input"))
    kept.value += 5
    counters.add("tokens_total", ("p", "input"), 2)
    assert counters.totals() == {"tokens_total": {("p", "input"): 7}}


def test_a_duration_falls_into_the_bucket_that_ends_at_it_or_after_it(counters):
    kept = counters.durations("attempt_seconds", ("p",))
    for seconds in (0.05, 0.06, 1000.0):
        kept.observe(seconds)
    row = counters.histograms()["attempt_seconds"]["p",]
    assert row[:2] == [1.0, 1.0] and row[len(BUCKETS)] == 1.0 and row[-1] == pytest.approx(1000.11)


def test_the_other_workers_of_a_server_are_counted_in(counters, tmp_path):
    counters.add("requests_total", ("GET /", "200"))
    counters.durations("attempt_seconds", ("p",)).observe(0.2)
    counters.stop()
    other = Counters(tmp_path)
    other._file = tmp_path / "another.json"
    other.add("requests_total", ("GET /", "200"), 2)
    assert other.totals()["requests_total"] == {("GET /", "200"): 3}
    assert sum(other.histograms()["attempt_seconds"]["p",][:-1]) == 1


def test_durations_are_counted_when_they_are_read_and_once(counters):
    kept = counters.durations("attempt_seconds", ("p",))
    for seconds in (400.0, 0.2, 0.1):
        kept.observe(seconds)
    first = list(kept.row)
    kept.observe(0.3)
    assert sum(first[:-1]) == 3 and first[len(BUCKETS)] == 1 and kept.row[-1] == pytest.approx(400.6)
    assert sum(kept.row[:-1]) == 4


def test_only_histograms_with_observations_are_written(counters):
    unused = [counters.durations("request_seconds", (f"GET /{number}",)) for number in range(50)]
    used = counters.durations("request_seconds", ("GET /used",))
    counters.write()
    size = counters._file.stat().st_size
    used.observe(0.2)
    assert size < 200 and list(counters.histograms()["request_seconds"]) == [("GET /used",)]
    unused[3].observe(0.3)
    used.observe(0.4)
    assert {labels: sum(row[:-1]) for labels, row in counters.histograms()["request_seconds"].items()} == {
        ("GET /used",): 2,
        ("GET /3",): 1,
    }
