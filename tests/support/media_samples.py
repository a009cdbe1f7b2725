"""Answers of media operations from the providers' documentation, read by the real codecs like in the engine."""

import json
from pathlib import Path
from typing import Any

from gateway.billing.context import Attempt
from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.field_checks import read_prices
from gateway.engine.streaming import observe
from gateway.engine.unary import describe
from gateway.neutral import images, speech, structured, transcriptions
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.events import Finished
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Requirements
from gateway.neutral.structured import DecisionRequest, ModerationRequest, OcrRequest
from gateway.neutral.usage import Units, Usage
from gateway.providers.protocol import Credential, Target, WireFormat
from gateway.runtime.large_files import StoredFile

SAMPLES = Path(__file__).parents[1] / "samples" / "media_usage"
CORPUS = [sample for path in sorted(SAMPLES.glob("*.json")) for sample in json.loads(path.read_text())]
PROMPT_BYTES = 400  # of every request in `support.billing`
BODIES = {
    OcrRequest: {"document": {"type": "document_url", "document_url": "https://x.example/a.pdf"}},
    ModerationRequest: {"input": "Hi"},
    DecisionRequest: {"state": "Hi", "questions": []},
}


class Reply:
    """An upstream's answer: an object, a list of events, or audio for None."""

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
        """Do nothing."""


def request_of(sample: dict[str, Any]) -> Any:
    """Return the request of a sample, as its surface builds it."""
    kind, fields = OPERATIONS[sample["operation"]].request, sample.get("asked", {})
    units = None
    if issubclass(kind, images.ImagesRequest):
        body: Any = images.ImagesInput(**fields)
        units = images.units_of(body)
    elif issubclass(kind, speech.SpeechRequest):
        body = speech.SpeechInput(**{"text": "Hello"} | fields)
        units = speech.units_of(body)
    elif issubclass(kind, transcriptions.TranscriptionRequest):
        body = transcriptions.TranscriptionInput(StoredFile.of(b"sound"), "audio/wav", "a.wav")
        length_ms = sample.get("length_ms", 1000)
        units = transcriptions.units_of(body, length_ms, length_ms, length_ms)
    elif issubclass(kind, structured.RerankRequest):
        body = structured.RerankInput(**{"query": "q", "documents": ["a", "b"]} | fields)
        units = structured.units_of(body)
    elif issubclass(kind, EmbeddingsRequest):
        body = EmbeddingsInput(("a",))
    else:
        body = BODIES[kind]
        pages = sample.get("pages")
        units = Units(Usage(pages=pages or 1000), Usage(pages=pages or 1)) if kind is OcrRequest else None
    return kind("m", Requirements(units=units, prompt_bytes=PROMPT_BYTES, messages=1), lambda: body)


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


def read_answer(wire: WireFormat, sample: dict[str, Any], request: Any, attempt: Attempt) -> None:
    """Read an answer with the codec and record it on the attempt, as the engine does."""
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
