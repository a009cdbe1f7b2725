"""Embeddings of Google's models: the call and its answer, as AI Studio and as Vertex AI have it.

Facts: Gemini API reference, models.batchEmbedContents; Vertex AI reference, text embeddings (predict).
"""

from typing import Any

from msgspec import Raw, Struct, json

from gateway.dialects import google as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import ODD, SHAPE_ERRORS
from gateway.providers.google.generate import Authorize, address_of
from gateway.providers.google.traits import traits_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.vectors import read_apart, read_vectors
from gateway.providers.written import WrittenCodec
from gateway.runtime.threads import compute_if

BATCH = "batchEmbedContents"
PREDICT = "predict"


class SentVector(Struct):
    values: Raw
    statistics: Any = None


class SentPrediction(Struct):
    embeddings: SentVector


class SentBatch(Struct):
    """The fields that are read from either answer."""

    embeddings: list[SentVector] = []
    usageMetadata: Any = None
    predictions: list[SentPrediction] | None = None


ANSWER = json.Decoder(SentBatch)


class GoogleEmbeddings(WrittenCodec):
    """POST {address}/models/{model}:batchEmbedContents, or :predict at Vertex AI. `authorize` puts the credential into
    headers."""

    dialect = dialect.NAME
    waits = True  # for a token

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: EmbeddingsRequest, target: Target) -> Call:
        """The call built from the neutral form; NotSupported for token numbers. For a service account a token may be
        fetched first: then also UpstreamRefused, UpstreamFailed."""
        wanted: EmbeddingsInput = request.content()
        if request.token_ids:
            raise NotSupported("This model takes texts, no token numbers.", param="input", code="unsupported_input")
        enterprise = traits_of(target).enterprise
        write = _predict if enterprise else _batch
        body = compute_if(request.large, write, wanted, target)
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = headers["accept"] = "application/json"
        self._authorize(headers, target)
        return Call("POST", address_of(target, PREDICT if enterprise else BATCH), headers, body)

    def read(self, reply: UpstreamReply, relayed: bool) -> EmbeddingsResult:
        """The vectors of either answer. UpstreamFailed when it is no list of them, or is empty."""
        sent = read_apart(ANSWER, reply.read_all())
        try:
            if sent.predictions is None:
                found, tokens = _read_batch(sent)
            else:
                found, tokens = _read_predictions(sent.predictions)
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
        return EmbeddingsResult(read_vectors(found), usage=None if tokens is None else Usage(input=tokens))


def _batch(wanted: EmbeddingsInput, target: Target) -> bytes:
    if wanted.dimensions is None:
        more = {}
    else:
        more = {"outputDimensionality": wanted.dimensions}
    name = target.mapping.external_id
    if "/" in name:
        model = name
    else:
        model = f"models/{name}"
    requests = [{"model": model, "content": {"parts": [{"text": one}]}, **more} for one in wanted.inputs]
    return json.encode({"requests": requests})


def _predict(wanted: EmbeddingsInput, target: Target) -> bytes:
    body: dict[str, Any] = {"instances": [{"content": one} for one in wanted.inputs]}
    if wanted.dimensions is not None:
        body["parameters"] = {"outputDimensionality": wanted.dimensions}
    return json.encode(body)


def _read_batch(sent: SentBatch) -> tuple[list[Raw], int | None]:
    """The vectors and, where it is reported, how many tokens were read."""
    reported = (sent.usageMetadata or {}).get("promptTokenCount")
    return [one.values for one in sent.embeddings], None if reported is None else read_count(reported)


def _read_predictions(predictions: list[SentPrediction]) -> tuple[list[Raw], int | None]:
    rows = [one.embeddings for one in predictions]
    counts = [(row.statistics or {}).get("token_count") for row in rows]
    if any(one is None for one in counts):
        tokens = None
    else:
        tokens = sum(read_count(one) for one in counts)
    return [row.values for row in rows], tokens
