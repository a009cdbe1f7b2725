"""Usage rows of whole answers: exact if the provider reported all counts, and never free of charge if it did not.

The answers of the corpus of `test_media_usage.py`, with the counts of their usage changed at random.
"""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.billing import DOLLAR, attempt_at
from support.media_samples import CORPUS, place_of, read_answer, request_of

from gateway.billing.bounds import Bounds
from gateway.catalogue.prices import COMPONENTS
from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import GatewayError
from gateway.providers.registry import make_protocols
from gateway.transport import Transport

AT = 1_750_000_000_000_000
USAGES = ("usage", "usageMetadata", "usage_info", "billed_units", "duration", "input_tokens", "statistics")
ABSURD: list[Any] = [-1, 10**12, float("inf"), "many", None, True, [], {}]
# Kinds of usage: input, output, and each unit with its own price.
READ = {"input", "cached_input", "cache_write", "cache_write_1h", "audio_input", "audio_cached_input", "image_input"}
MADE = {"output", "reasoning", "audio_output", "image_output"}
KINDS = [READ, MADE, *({name} for name in COMPONENTS if name not in READ | MADE)]


def counts_in(value: Any, inside: bool = False) -> list[tuple[dict[str, Any], str]]:
    """Where the counts of an answer's usage stand."""
    found: list[tuple[dict[str, Any], str]] = []
    if isinstance(value, list):
        return [one for item in value for one in counts_in(item, inside)]
    if isinstance(value, dict):
        for name, item in value.items():
            named = inside or name in USAGES
            found += [(value, name)] if named and type(item) in (int, float) else counts_in(item, named)
    return found


@pytest.fixture(scope="module")
def wires():
    return make_protocols(Transport(Timeouts(1, 1, 1, 1, 1, 1), Security(False, (), ())), Clock())


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 1_000_000 * DOLLAR, "start")
    return started


def settled(process, account, wires, sample):
    """The settled attempt of a sample with what was reserved for it; None for an answer that cannot be read."""
    target, request = place_of(sample, 1), request_of(sample)
    bound = Bounds((target.mapping,)).compute(request, 1000, AT)
    settlement = process.admit(account, bound, units=request.requirements.units)
    settlement.begin(0, target)
    attempt = attempt_at(target)
    try:
        read_answer(wires[sample["protocol"]], sample, request, attempt)
    except (GatewayError, AssertionError):
        settlement.unused(attempt)
        return None, 0
    finally:
        settlement.close()
    settlement = process.admit(account, bound, units=request.requirements.units)
    settlement.begin(0, target)
    settlement.settle(attempt)
    settlement.close()
    return attempt, bound.bound_nusd


@settings(
    max_examples=4 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_report_makes_an_answer_free_or_dearer_than_reserved(process, account, wires, data):
    sample = copy.deepcopy(data.draw(st.sampled_from(CORPUS)))
    whole, _ = settled(process, account, wires, sample)
    changes = change_counts(sample, data)
    attempt, reserved_nusd = settled(process, account, wires, sample)
    if attempt is None:
        return  # it cannot be read, so nothing of it was delivered
    if set(changes) <= {"kept"}:
        assert attempt.charge.total == sample["total"]
    if attempt.usage.basis == "estimated" and "absurd" not in changes:
        # Other reported counts may exceed the reservation.
        reported_nusd = sample["total"] if "kept" in changes else 0
        assert attempt.charge.total <= reserved_nusd + reported_nusd
    if "kept" not in changes:
        bare = without_usage(process, account, wires, sample)
        for kind in KINDS:
            assert billed(attempt, kind) >= billed(bare, kind), (sample["name"], kind)
    for kind in KINDS:
        if kind is READ and (whole.charge.audio_seconds or whole.charge.ocr):
            continue  # the sound or the pages are what was read; the request has no text
        assert not billed(whole, kind) or billed(attempt, kind), (sample["name"], kind)


def change_counts(sample, data):
    """Change the counts of an answer's usage at random and return the kinds of the changes."""
    counts = counts_in(sample["answer"])
    changes = [data.draw(st.sampled_from(["kept", "zero", "absent", "absurd"])) for _ in counts]
    for (holder, name), change in zip(counts, changes, strict=True):
        if change == "zero":
            holder[name] = 0
        elif change == "absent":
            del holder[name]
        elif change == "absurd":
            holder[name] = data.draw(st.sampled_from(ABSURD))
    return changes


def billed(attempt, kind):
    return sum(getattr(attempt.charge, name) for name in kind)


def without_usage(process, account, wires, sample):
    """The settled attempt of a sample without the counts of its provider."""
    bare = copy.deepcopy(sample)
    for holder, name in counts_in(bare["answer"]):
        del holder[name]
    return settled(process, account, wires, bare)[0]


def images_in(value):
    """The number of images in an answer."""
    if isinstance(value, list):
        return sum(map(images_in, value))
    if not isinstance(value, dict):
        return 0
    here = bool(value.keys() & {"b64_json", "bytesBase64Encoded", "inlineData"})
    return here + sum(map(images_in, value.values()))


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: f"{sample['operation']} {sample['name']}")
def test_an_answer_without_usage_costs_what_was_delivered_at_the_documented_rates(process, account, wires, sample):
    """The rates of docs/limits.md, counted here from the answer and the request alone."""
    attempt = without_usage(process, account, wires, sample)
    usage, charge = attempt.usage, attempt.charge
    asked = sample.get("asked", {})
    answer = sample["answer"]
    request = request_of(sample)
    operation = sample["operation"]
    if operation in ("images", "image_edits"):
        assert usage.images == images_in(answer)
        made = charge.images + charge.image_output + charge.output
        assert bool(made) == bool(usage.images) or attempt.finish == "content_filter"
    elif operation == "ocr":
        assert usage.pages == len(answer["pages"])
    elif operation == "speech":
        text = asked.get("text", "Hello")
        assert charge.characters or usage.output_audio >= int(1.7 * len(text) / asked.get("speed", 1.0))
        assert not charge.characters or usage.characters == len(text)
    elif operation in ("transcriptions", "translations"):
        said = [part.get("end", 0) for part in (*answer.get("segments", ()), *answer.get("words", ()))]
        seconds = max(said, default=0) or sample.get("length_ms", 1000) / 1000
        assert charge.audio_seconds or usage.input_audio >= int(10 * seconds)
        assert not charge.audio_seconds or usage.audio_ms >= int(1000 * seconds)
    elif operation == "rerank":
        assert usage.searches >= 1 or usage.input > 0
    elif charge.total:
        assert usage.input >= -(-request.requirements.prompt_bytes // 4) or charge.request
    assert charge.total or not sample["total"] or attempt.finish == "content_filter"
