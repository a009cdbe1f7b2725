import json

import pytest

from gateway.errors import (
    ConnectFailed,
    InvalidRequest,
    UpstreamFailed,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.routing.provider_health import MAX_WINDOWS, Health
from gateway.routing.sliding_window import weigh_age

FAILED = UpstreamFailed("it failed", upstream_status=500)


@pytest.fixture
def health(clock):
    clock.freeze()
    clock.advance(60.01 - clock.monotonic() % 60)  # a minute begins
    return Health(clock)


def feed(health, one, credential, succeeded=0, failed=0, error=FAILED):
    for _ in range(succeeded):
        health.sample(one, credential)
    for _ in range(failed):
        health.sample(one, credential, error=error)


def cooling_down(health, clock, one, *credentials):
    """Return whether a mapping is tried last, with all these credentials."""
    return cooling_down_for("", health, clock, one, *credentials)


def cooling_down_for(organization, health, clock, one, *credentials):
    now = clock.monotonic()
    if health.cooldown_of(one.key, one.provider, now):
        return True
    return all(
        health.credential_cooldown(one.key, one.provider, credential, now, organization) for credential in credentials
    )


def test_unknown_mappings_have_the_default_figures(health):
    view = health.view("p/m")
    assert (view.uptime, view.latency_ms, view.throughput, view.events) == (100.0, 1000.0, 50.0, 0)


def test_uptime_latency_and_throughput_are_measured(health, mapping, key):
    for wait in (100, 200, 300):
        health.sample(mapping("p"), key(), ttft_ms=wait, tokens=80, duration_ms=1000)
    health.sample(mapping("p"), key(), error=UpstreamTimeout("late"))
    view = health.view("p/m")
    assert (view.uptime, view.latency_ms, view.throughput) == (75.0, 200.0, 80.0)


def test_callers_errors_count_on_neither_side(health, mapping, key):
    feed(health, mapping("p"), key(), succeeded=3)
    feed(health, mapping("p"), key(), failed=50, error=InvalidRequest("wrong", upstream_status=400))
    assert health.view("p/m").uptime == 100.0 and health.view("p/m").events == 3


def test_one_lost_first_request_says_nothing_of_uptime(health, mapping, key):
    feed(health, mapping("p"), key(), failed=2)
    assert health.view("p/m").uptime == 100.0
    feed(health, mapping("p"), key(), failed=1)
    assert health.view("p/m").uptime == 0.0


@pytest.mark.parametrize(("age_s", "weight"), [(59, 10), (200, 3), (1000, 1)])
def test_recent_outcomes_weigh_ten_and_three_times(health, clock, mapping, key, age_s, weight):
    feed(health, mapping("p"), key(), failed=4)
    clock.advance(age_s)
    feed(health, mapping("p"), key(), succeeded=4)
    assert health.view("p/m").uptime == pytest.approx(100 * 10 / (10 + weight), abs=0.01)


def test_after_an_hour_an_outcome_is_forgotten(health, clock, mapping, key):
    feed(health, mapping("p"), key(), failed=4)
    clock.advance(61 * 60)
    assert health.view("p/m").uptime == 100.0


def test_a_bucket_loses_weight_gradually():
    assert weigh_age(1, 0.0) == 10 and weigh_age(1, 0.5) == 6.5 and weigh_age(1, 1.0) == weigh_age(2, 0.0) == 3
    assert weigh_age(5, 0.5) == 2 and weigh_age(60, 0.5) == 0.5 and weigh_age(61, 0.0) == 0


def test_a_refused_connection_rests_the_place_at_once_for_all_its_models(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=ConnectFailed("refused"))
    assert cooling_down(health, clock, mapping("p", model="other"), key())
    clock.advance(1.01)
    assert not cooling_down(health, clock, mapping("p"), key())


def test_rests_grow_with_every_failed_probe_up_to_a_minute(health, clock, mapping, key):
    lengths = []
    for _ in range(9):
        health.sample(mapping("p"), key(), error=ConnectFailed("refused"))
        lengths.append(round(health.view("p/m", "p").cooldown_until - clock.monotonic()))
        clock.advance(lengths[-1] + 0.001)
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_failures_of_requests_under_way_do_not_lengthen_a_rest(health, clock, mapping, key):
    feed(health, mapping("p"), key(), failed=100, error=ConnectFailed("refused"))
    assert health.view("p/m", "p").cooldown_until - clock.monotonic() == pytest.approx(1.0)


def test_only_one_request_probes_after_a_rest(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=ConnectFailed("refused"))
    clock.advance(1.01)
    assert not cooling_down(health, clock, mapping("p"), key())
    health.begin(mapping("p"), key())
    assert cooling_down(health, clock, mapping("p"), key())
    health.sample(mapping("p"), key())
    assert not cooling_down(health, clock, mapping("p"), key())


def test_a_slow_probe_does_not_block_other_requests(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=ConnectFailed("refused"))
    clock.advance(1.01)
    health.begin(mapping("p"), key())
    clock.advance(5.01)
    assert not cooling_down(health, clock, mapping("p"), key())


@pytest.mark.parametrize("status", [0, 401, 402])
def test_a_refused_credential_rests_alone_for_all_models(health, clock, mapping, key, status):
    health.sample(mapping("p"), key("bad"), error=UpstreamRefused("no", upstream_status=status))
    assert cooling_down(health, clock, mapping("p", model="other"), key("bad"))
    assert not cooling_down(health, clock, mapping("p", model="other"), key("bad"), key("good"))
    assert cooling_down(health, clock, mapping("p"), key("bad"))


def test_a_model_unknown_there_does_not_rest_the_credential_for_others(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=UpstreamRefused("no such model", upstream_status=404))
    assert cooling_down(health, clock, mapping("p"), key())
    assert not cooling_down(health, clock, mapping("p", model="other"), key())


def test_retry_after_is_kept_exactly_and_without_a_probe(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=UpstreamRateLimited("slow down", retry_after=20))
    clock.advance(19.9)
    assert cooling_down(health, clock, mapping("p"), key())
    clock.advance(0.2)
    health.begin(mapping("p"), key())
    assert not cooling_down(health, clock, mapping("p"), key())


def test_an_absurd_retry_after_is_capped(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=UpstreamRateLimited("slow down", retry_after=10**9))
    clock.advance(3600.1)
    assert not cooling_down(health, clock, mapping("p"), key())


def test_five_failures_in_a_row_open_the_circuit(health, clock, mapping, key):
    feed(health, mapping("p"), key(), failed=4)
    health.sample(mapping("p"), key())
    feed(health, mapping("p"), key(), failed=4)
    assert not cooling_down(health, clock, mapping("p"), key())
    feed(health, mapping("p"), key(), failed=1)
    assert cooling_down(health, clock, mapping("p"), key())


def test_a_callers_own_bad_key_says_nothing_of_the_provider(health, clock, mapping, key):
    own = key("own", "byok")
    feed(health, mapping("p"), own, failed=10, error=UpstreamRefused("no", upstream_status=401))
    assert health.view("p/m").uptime == 100.0
    assert not cooling_down(health, clock, mapping("p"), key()) and cooling_down(health, clock, mapping("p"), own)


def test_a_callers_own_address_cannot_rest_the_provider_for_others(health, clock, mapping, key):
    own = key("own", "byok", "https://example.invalid", elsewhere=True)
    feed(health, mapping("p"), own, failed=10, error=ConnectFailed("refused"))
    assert health.view("p/m").uptime == 100.0
    assert not cooling_down(health, clock, mapping("p"), key()) and cooling_down(health, clock, mapping("p"), own)


def test_silence_at_a_callers_own_address_rests_that_key_alone(health, clock, mapping, key):
    own = key("own", "byok", "https://example.invalid", elsewhere=True)
    assert [health.note_silence(mapping("p"), own, request) for request in "abc"] == [False, False, True]
    assert not cooling_down(health, clock, mapping("p"), key()) and cooling_down(health, clock, mapping("p"), own)
    assert not health.note_silence(mapping("p"), key(), "d")


def test_failures_of_a_key_that_is_used_elsewhere_rest_that_key_alone(health, clock, mapping, key):
    own, other = key("own", "byok", elsewhere=True), key("other", "byok", elsewhere=True)
    feed(health, mapping("p"), own, failed=5)
    assert cooling_down(health, clock, mapping("p"), own) and not cooling_down(health, clock, mapping("p"), key())
    assert not cooling_down(health, clock, mapping("p"), other)
    assert not cooling_down(health, clock, mapping("p", model="other"), own)
    assert health.view("p/m").events == 0


def test_outcomes_and_rests_travel_to_other_workers_once(health, clock, mapping, key):
    other_health = Health(clock)
    feed(health, mapping("p"), key(), succeeded=6, failed=2)
    health.sample(mapping("q"), key(), error=ConnectFailed("refused"))
    other_health.merge(json.loads(json.dumps(health.export())))
    assert other_health.view("p/m").uptime == 75.0 and cooling_down(other_health, clock, mapping("q"), key())
    assert health.export()["windows"] == [] and other_health.export() == {
        "form": 2,
        "windows": [],
        "rests": [],
        "refusals": [],
    }


def test_a_recovery_travels_too(health, clock, mapping, key):
    other_health = Health(clock)
    health.sample(mapping("q"), key(), error=ConnectFailed("refused"))
    other_health.merge(health.export())
    health.sample(mapping("q"), key())
    other_health.merge(health.export())
    assert not cooling_down(other_health, clock, mapping("q"), key())


def test_a_late_delta_is_dated_back(health, clock, mapping, key):
    feed(health, mapping("p"), key(), failed=4)
    delta, other = health.export(), Health(clock)
    other.merge(delta, age_s=600)
    feed(other, mapping("p"), key(), succeeded=4)
    assert other.view("p/m").uptime == pytest.approx(100 * 10 / 11, abs=0.1)


def test_a_delta_of_another_form_is_ignored(health):
    health.merge({"form": 99, "strange": True})
    assert health.view("p/m").events == 0


def test_memory_is_bounded(health, mapping, key):
    one = mapping("p")
    for number in range(MAX_WINDOWS + 50):
        health.sample(one, key(f"k{number}"))
    assert len(health.export()["windows"]) <= MAX_WINDOWS and health.view("p/m").events == MAX_WINDOWS + 50


def test_a_success_of_a_minute_counts_in_that_minute_though_it_is_read_later(health, clock, mapping, key):
    feed(health, mapping("p"), key(), succeeded=2)
    clock.advance(120)
    feed(health, mapping("p"), key(), succeeded=1)
    ages = {ago: counts[0] for name, ago, counts in health.export()["windows"] if name == "p/m"}
    assert ages == {2: 2, 0: 1}


def test_a_success_ends_the_failures_in_a_row_before_the_next_one(health, clock, mapping, key):
    for _ in range(2):
        feed(health, mapping("p"), key(), failed=4)
        feed(health, mapping("p"), key(), succeeded=1)
    assert not cooling_down(health, clock, mapping("p"), key())


def test_models_regions_and_credentials_are_counted_apart(health, mapping, key):
    feed(health, mapping("p", region="eu"), key("one"), succeeded=3)
    feed(health, mapping("p"), key("two"), succeeded=4)
    feed(health, mapping("p"), key("own", source="byok", elsewhere=True), succeeded=5)
    events = {name: health.view(name).events for name in ("p/m:eu", "p/m", "p#one", "p#two", "p#own")}
    assert events == {"p/m:eu": 3, "p/m": 4, "p#one": 3, "p#two": 4, "p#own": 0}


def test_a_kept_tally_counts_on_after_its_windows_were_read(health, clock, mapping, key):
    tally = health.tally(mapping("p"), key())
    for events in (1, 2, 3):
        health.count_success(tally, clock.monotonic(), tokens=80, duration_ms=1000)
        assert health.view("p/m").events == events
    assert health.view("p/m").throughput == 80.0


def test_a_kept_tally_counts_though_callers_brought_more_keys_than_are_remembered(health, clock, mapping, key):
    tally = health.tally(mapping("p"), key())
    for number in range(MAX_WINDOWS + 1):
        health.tally(mapping("p"), key(f"k{number}"))
    health.count_success(tally, clock.monotonic())
    health.count_success(health.tally(mapping("p"), key()), clock.monotonic())
    assert health.view("p/m").events == 2


def test_a_good_attempt_counted_in_a_kept_tally_ends_the_rests_of_its_place(health, clock, mapping, key):
    tally = health.tally(mapping("p"), key())
    health.sample(mapping("p"), key(), error=ConnectFailed("refused"))
    assert cooling_down(health, clock, mapping("p"), key())
    health.count_success(tally, clock.monotonic())
    assert not cooling_down(health, clock, mapping("p"), key())


UNKNOWN = UpstreamRefused("no such file", upstream_status=404)
BAD_KEY = UpstreamRefused("bad key", upstream_status=401)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
def test_one_organizations_refusals_count_for_it_alone_and_only_when_several_in_a_row(
    health, clock, mapping, key, status
):
    error = UpstreamRefused("no", upstream_status=status)
    for number in range(1, 4):
        health.sample(mapping("p"), key(), error=error, organization="one")
        assert cooling_down_for("one", health, clock, mapping("p"), key()) is (number == 3)
    assert not cooling_down_for("two", health, clock, mapping("p"), key())
    assert health.view("p/m").events == 0


def test_refusals_that_several_organizations_met_count_for_all(health, clock, mapping, key):
    for organization in ("one", "two"):
        health.sample(mapping("p"), key(), error=UNKNOWN, organization=organization)
    assert cooling_down_for("three", health, clock, mapping("p"), key())
    assert not cooling_down_for("three", health, clock, mapping("p", model="other"), key())


def test_a_success_between_refusals_forgets_them(health, clock, mapping, key):
    for organization in ("one", "two", "one", "one"):
        health.sample(mapping("p"), key(), error=BAD_KEY, organization=organization)
        health.sample(mapping("p", model="other"), key(), organization="two")
    assert not cooling_down_for("one", health, clock, mapping("p"), key())


def test_an_account_without_funds_rests_at_once_for_all(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=UpstreamRefused("pay", upstream_status=402), organization="one")
    assert cooling_down_for("two", health, clock, mapping("p"), key())


def test_refusals_long_ago_are_not_in_a_row(health, clock, mapping, key):
    for _ in range(5):
        health.sample(mapping("p"), key(), error=UNKNOWN, organization="one")
        clock.advance(601)
        health.sample(mapping("p"), key(), error=UNKNOWN, organization="two")
        clock.advance(601)
    assert not cooling_down_for("one", health, clock, mapping("p"), key())


def test_refusals_seen_by_different_workers_add_up(health, clock, mapping, key):
    other_health = Health(clock)
    health.sample(mapping("p"), key(), error=UNKNOWN, organization="one")
    other_health.merge(json.loads(json.dumps(health.export())))
    other_health.sample(mapping("p"), key(), error=UNKNOWN, organization="two")
    assert cooling_down_for("three", other_health, clock, mapping("p"), key())
    other_health.sample(mapping("p"), key())
    health.merge(json.loads(json.dumps(other_health.export())))
    assert not health.refusals and not health.cooldowns.providers and not health._watched


@pytest.mark.parametrize("error", [*[UpstreamRefused("no", upstream_status=402)], ConnectFailed("refused"), FAILED])
def test_a_probe_that_ends_in_a_refusal_of_the_callers_request_ends_the_rest(health, clock, mapping, key, error):
    feed(health, mapping("p"), key(), failed=5, error=error)
    assert cooling_down(health, clock, mapping("p"), key())
    clock.advance(61)
    health.begin(mapping("p"), key())
    health.sample(mapping("p"), key(), error=InvalidRequest("wrong", upstream_status=400))
    assert not cooling_down(health, clock, mapping("p"), key()) and not health.cooldowns.providers


def test_a_limit_lasts_though_another_request_is_refused_as_the_callers_fault(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=UpstreamRateLimited("slow", retry_after=20))
    health.sample(mapping("p"), key(), error=InvalidRequest("wrong", upstream_status=400))
    assert cooling_down(health, clock, mapping("p"), key())


def test_a_limit_is_one_of_a_credential_with_a_model(health, clock, mapping, key):
    health.sample(mapping("p"), key("k1"), error=UpstreamRateLimited("slow", retry_after=20))
    assert cooling_down(health, clock, mapping("p"), key("k1"))
    assert not cooling_down(health, clock, mapping("p"), key("k2"))
    assert not cooling_down(health, clock, mapping("p", model="other"), key("k1"))


def test_a_connection_that_was_closed_is_no_sign_that_nothing_answers(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=UpstreamUnreachable("closed before it answered"))
    assert not cooling_down(health, clock, mapping("p"), key())


def test_any_answer_ends_the_rest_of_a_place(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=ConnectFailed("refused"))
    health.sample(mapping("p"), key(), error=FAILED)
    assert not cooling_down(health, clock, mapping("p"), key())


def test_workers_share_when_the_next_request_may_try(health, clock, mapping, key):
    other_health = Health(clock)
    health.sample(mapping("p"), key(), error=ConnectFailed("refused"))
    other_health.merge(health.export())
    clock.advance(3.1)
    assert not other_health.is_unreachable(mapping("p"), key())
    health.begin(mapping("p"), key())
    other_health.merge(health.export())
    assert other_health.is_unreachable(mapping("p"), key())


def test_memory_of_refusals_is_bounded(health, mapping, key):
    for number in range(3000):
        health.sample(mapping("p"), key(f"k{number}"), error=UNKNOWN, organization=f"o{number}")
        health.sample(mapping("p"), key("same"), error=UNKNOWN, organization=f"o{number}")
    assert len(health.refusals._seen) <= 2000 and len(health.refusals._seen["p/m#same"]) <= 3


def test_a_rejection_without_cooldown_keeps_the_fast_path_of_planning(health, mapping, key):
    health.sample(mapping("p"), key(), error=UNKNOWN, organization="one")
    assert health.refusals and not health.cooldowns.may_be_cooling("p")
    health.sample(mapping("p"), key())
    assert not health.refusals


def test_old_cooldowns_are_forgotten(health, clock, mapping, key):
    health.sample(mapping("p"), key(), error=UpstreamRateLimited("slow", retry_after=20))
    for seconds, known in ((500, True), (200, False)):
        clock.advance(seconds)
        health.cooldowns.remove_expired()
        assert health.cooldowns.may_be_cooling("p") is known
