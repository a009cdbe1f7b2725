"""Media operations as providers count them: read by the real codecs, billed, recorded and priced again.

A sample has the price list of a mapping, what was asked, the provider's answer by its own documentation, the disjoint
counts that it means, and what these cost: each component computed by hand and rounded by itself.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from support.billing import DOLLAR, attempt_at

from gateway.billing.outcome import Attempt
from gateway.billing.rerating import rerate
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.fields import read_prices
from gateway.catalogue.prices import COMPONENTS
from gateway.clock import Clock
from gateway.engine.streaming import observe
from gateway.engine.unary import describe
from gateway.files import StoredFile
from gateway.limits.cost_bound import CostBound
from gateway.neutral import images, rerank, speech, transcriptions
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.events import Finished
from gateway.neutral.request import Requirements
from gateway.neutral.structured import DecisionRequest, ModerationRequest, OcrRequest
from gateway.neutral.usage import Units, Usage
from gateway.operations import OPERATIONS
from gateway.providers.protocol import Credential, Target, Wire
from gateway.providers.registry import make_protocols
from gateway.settings import Security, Timeouts
from gateway.transport import Transport

SAMPLES = Path(__file__).parents[2] / "samples" / "media_usage"
CORPUS = [sample for path in sorted(SAMPLES.glob("*.json")) for sample in json.loads(path.read_text())]
AT = 1_750_000_000_000_000
BODIES = {
    OcrRequest: {"document": {"type": "document_url", "document_url": "https://x.example/a.pdf"}},
    ModerationRequest: {"input": "Hi"},
    DecisionRequest: {"state": "Hi", "questions": []},
}


class Reply:
    """An upstream's answer: an object, a list of events, or sound for None."""

    status = 200

    def __init__(self, answer: Any) -> None:
        kind, self._body = "application/json", json.dumps(answer).encode()
        if isinstance(answer, list):
            kind, self._body = "text/event-stream", b"".join(b"data: %s\n\n" % json.dumps(e).encode() for e in answer)
        elif answer is None:
            kind, self._body = "audio/mpeg", b"ID3sound"
        self.headers = {"content-type": kind}

    def read_all(self) -> bytes:
        return self._body

    def chunks(self) -> Any:
        return iter([self._body])

    def close(self) -> None:
        """Nothing is open."""


def request_of(sample: dict[str, Any]) -> Any:
    """What was asked, as its surface makes it."""
    kind, asked = OPERATIONS[sample["operation"]].request, sample.get("asked", {})
    units = None
    if issubclass(kind, images.ImagesRequest):
        wanted: Any = images.ImagesInput(**asked)
        units = images.units_of(wanted)
    elif issubclass(kind, speech.SpeechRequest):
        wanted = speech.SpeechInput(**{"text": "Hello"} | asked)
        units = speech.units_of(wanted)
    elif issubclass(kind, transcriptions.TranscriptionRequest):
        wanted = transcriptions.TranscriptionInput(StoredFile.of(b"sound"), "audio/wav", "a.wav")
        length_ms = sample.get("length_ms", 1000)
        units = transcriptions.units_of(wanted, length_ms, length_ms)
    elif issubclass(kind, rerank.RerankRequest):
        wanted = rerank.RerankInput(**{"query": "q", "documents": ["a", "b"]} | asked)
        units = rerank.units_of(wanted)
    elif issubclass(kind, EmbeddingsRequest):
        wanted = EmbeddingsInput(("a",))
    else:
        wanted = BODIES[kind]
        units = Units(Usage(pages=sample["pages"]), Usage(pages=sample["pages"])) if "pages" in sample else None
    return kind("m", Requirements(units=units), lambda: wanted)


def place_of(sample: dict[str, Any], number: int) -> Target:
    provider = Provider("mock", "Mock", sample["protocol"])
    mapping = Mapping(
        "mock",
        f"m-{number}",
        sample.get("model", f"m-{number}"),
        prices=read_prices(sample["prices"]),
        price_version="p1",
        image_tokens=sample.get("image_tokens", {}),
        extra=sample.get("extra", {}),
    )
    return Target(provider, mapping, Credential("k", "platform", "ident"), "https://mock.example/v1")


def read_answer(wire: Wire, sample: dict[str, Any], request: Any, attempt: Attempt) -> None:
    """Note on the attempt what the codec reads of the answer, as the engine does."""
    codec: Any = wire.codecs[sample["operation"]]
    call = codec.write(request, attempt.target)
    reader, reply = call.reader or codec, Reply(sample["answer"])
    if sample["operation"] != "speech":
        describe(attempt, reader.read(reply, False))
        return
    for batch in reader.read_stream(reply, False):
        observe(attempt, batch, [])
    last = batch[-1]
    assert isinstance(last, Finished), last
    attempt.usage, attempt.finish = last.usage, last.reason


@pytest.fixture(scope="module")
def wires() -> dict[str, Wire]:
    return make_protocols(Transport(Timeouts(1, 1, 1, 1, 1, 1), Security(False, (), ())), Clock())


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 60


def test_the_books_have_each_payload_as_it_was_computed_by_hand(start_billing, account, wires) -> None:
    one = start_billing()
    one.ledger.grant(account.organization, 100 * DOLLAR, "start")
    wanted, mappings = {}, []
    for number, sample in enumerate(CORPUS):
        target, request = place_of(sample, number), request_of(sample)
        settlement = one.admit(account, CostBound(DOLLAR, 0, 0, True), units=request.requirements.units)
        settlement.begin(0, target)
        attempt = attempt_at(target)
        read_answer(wires[sample["protocol"]], sample, request, attempt)
        settlement.settle(attempt)
        settlement.close()
        assert attempt.usage == Usage(**sample["usage"]), sample["name"]
        charged = {name: nusd for name in COMPONENTS if (nusd := getattr(attempt.charge, name))}
        assert (charged, attempt.charge.total) == (sample["parts"], sample["total"]), sample["name"]
        wanted[target.mapping.key] = sample["total"]
        mappings.append(target.mapping)
    one.rest()
    report = rerate(one.database, Catalogue([Model("m", mappings=tuple(mappings))], [], {}, "v1"), AT, AT + 1)
    assert report.left == {}
    assert {place.mapping: line.recorded_nusd for place, line in report.lines.items()} == wanted
    assert {place.mapping: line.rated_nusd for place, line in report.lines.items()} == wanted
    assert one.ledger.balance(account.organization).balance_nusd == 100 * DOLLAR - sum(wanted.values())
