"""Usage as providers tell it, read by the real protocols and priced: exactly what was computed by hand.

A sample has the `usage` object in its provider's shape, the disjoint `buckets` that it means by that provider's own
documentation, and `nusd`, what they cost at the two price lists below, each component rounded by itself.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.catalogue.entries import Mapping
from gateway.catalogue.field_checks import read_prices
from gateway.catalogue.prices import cost_of
from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.neutral.chat import ChatResult
from gateway.neutral.events import Finished
from gateway.neutral.usage import Usage
from gateway.providers.registry import make_protocols
from gateway.transport import Transport

SAMPLES = Path(__file__).parents[2] / "samples" / "usage"
CORPUS = [
    pytest.param(sample, id=f"{path.stem}: {sample['name']}")
    for path in sorted(SAMPLES.glob("*.json"))
    for sample in json.loads(path.read_text())
]
# Whole nano-dollars per token, and fractions, with a separate price for reasoning and none for media.
PLAIN = {
    "prompt": "0.0000025",
    "completion": "0.00001",
    "input_cache_read": "0.00000125",
    "input_cache_write": "0.000003125",
    "input_cache_write_1h": "0.000005",
    "input_audio": "0.00004",
    "input_audio_cache_read": "0.0000025",
    "image": "0.0000031",
    "output_audio": "0.00008",
    "output_image": "0.00003",
    "web_search": "0.01",
}
FINE = {
    "prompt": "0.0000000755",
    "completion": "0.00000030025",
    "input_cache_read": "0.00000001885",
    "input_cache_write": "0.000000094375",
    "input_cache_write_1h": "0.000000151",
    "internal_reasoning": "0.000000450125",
    "web_search": "0.005",
}
MAPPINGS = [Mapping("p", "m", "m", prices=read_prices(prices)) for prices in (PLAIN, FINE)]
TEXT = [{"type": "text", "text": "Hi"}]


class Whole:
    """An upstream's whole answer."""

    status = 200

    def __init__(self, body: dict[str, Any]) -> None:
        self.headers: dict[str, str] = {}
        self._body = json.dumps(body).encode()

    def read_all(self) -> bytes:
        return self._body


class Streamed(Whole):
    """An upstream's stream, as one receive."""

    def __init__(self, events: list[dict[str, Any]], named: bool = False, done: bool = False) -> None:
        self.headers = {"content-type": "text/event-stream"}
        lines = [(f"event: {e['type']}\n" if named else "") + f"data: {json.dumps(e)}\n\n" for e in events]
        self._body = "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()

    def chunks(self) -> Any:
        return iter([self._body])

    def close(self) -> None:
        """Nothing is open."""


def body_of(sample: dict[str, Any]) -> dict[str, Any]:
    """The smallest answer of the sample's protocol that carries its usage."""
    usage = sample["usage"]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    said = {"type": "output_text", "text": "Hi", "annotations": []}
    candidate = {"content": {"parts": [{"text": "Hi"}], "role": "model"}, "finishReason": "STOP", "index": 0}
    return {
        "openai": {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": usage},
        "openai-responses": {
            "status": "completed",
            "output": [*sample.get("output", []), message | {"content": [said]}],
            "usage": usage,
        },
        "anthropic": {"type": "message", "content": TEXT, "stop_reason": "end_turn", "usage": usage},
        "google": {
            "candidates": [candidate | sample.get("candidate", {})],
            "modelVersion": sample.get("model", "gemini-2.5-flash"),
            "usageMetadata": usage,
        },
        "bedrock": {
            "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}},
            "stopReason": "end_turn",
            "usage": usage,
        },
        "cohere": {"message": {"role": "assistant", "content": TEXT}, "finish_reason": "COMPLETE", "usage": usage},
    }[sample["protocol"]]


@pytest.fixture(scope="module")
def protocols() -> dict[str, Any]:
    transport = Transport(Timeouts(1, 1, 1, 1, 1, 1), Security(False, (), ()))
    wires = make_protocols(transport, Clock())
    return {name: wire.codecs["chat"] for name, wire in wires.items() if "chat" in wire.codecs}


def read(protocols: dict[str, Any], sample: dict[str, Any]) -> ChatResult:
    return protocols[sample["protocol"]].read(Whole(body_of(sample)), False)


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 150


@pytest.mark.parametrize("sample", CORPUS)
def test_a_payload_costs_exactly_what_was_computed_by_hand(protocols, sample: dict[str, Any]) -> None:
    usage = read(protocols, sample).usage
    assert usage == Usage(**sample["buckets"])
    assert [cost_of(usage, mapping, 0).total for mapping in MAPPINGS] == sample["nusd"]


@pytest.mark.parametrize("sample", [one for one in CORPUS if one.values[0]["protocol"] == "openai"])
def test_a_stream_of_chat_chunks_costs_the_same(protocols, sample: dict[str, Any]) -> None:
    said = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    reply = Streamed([said, {"choices": [], "usage": sample["usage"]}], done=True)
    assert usage_of_stream(protocols["openai"], reply) == Usage(**sample["buckets"])


@pytest.mark.parametrize("sample", [one for one in CORPUS if one.values[0]["protocol"] == "anthropic"])
def test_a_stream_of_messages_counts_its_last_totals_once(protocols, sample: dict[str, Any]) -> None:
    early = {**sample["usage"], "output_tokens": 1}
    begun = {"type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": [], "usage": early}
    events = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": sample["usage"]},
        {"type": "message_stop"},
    ]
    assert usage_of_stream(protocols["anthropic"], Streamed(events, named=True)) == Usage(**sample["buckets"])


@pytest.mark.parametrize("sample", [one for one in CORPUS if one.values[0]["protocol"] == "google"])
def test_a_stream_of_candidates_counts_its_last_totals_once(protocols, sample: dict[str, Any]) -> None:
    whole = body_of(sample)
    first = {"candidates": [{"content": {"parts": [{"text": "H"}], "role": "model"}, "index": 0}]}
    early = {"modelVersion": whole["modelVersion"], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}}
    reply = Streamed([first | early, whole])
    assert usage_of_stream(protocols["google"], reply) == Usage(**sample["buckets"])


def usage_of_stream(protocol: Any, reply: Streamed) -> Usage | None:
    last = [event for batch in protocol.read_stream(reply, False) for event in batch][-1]
    assert isinstance(last, Finished), last
    return last.usage
