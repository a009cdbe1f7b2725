"""Embeddings of Google's models, in the formats of AI Studio and of Vertex AI.

Wire facts: Gemini API reference, models.batchEmbedContents; Vertex AI reference, text embeddings (predict).
"""

from typing import Any

from msgspec import Raw, Struct, json, structs

from gateway.dialects import google as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, EmbeddingsResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answer_checks import SHAPE_ERRORS, UNKNOWN_SHAPE
from gateway.providers.google.generate import Authorize, address_of
from gateway.providers.google.traits import traits_of
from gateway.providers.protocol import Call, Target, UpstreamReply, WrittenCodec
from gateway.providers.vectors import prefix_of, read_apart, read_vectors, require_floats, write_input_type
from gateway.runtime.threads import compute_if

BATCH = "batchEmbedContents"
PREDICT = "predict"
TASK_TYPE = "taskType"
PREDICTED_TASK = {TASK_TYPE: "task_type", "title": "title"}  # names of the fields in the second format


class SentVector(Struct):
    values: Raw
    statistics: Any = None


class SentPrediction(Struct):
    embeddings: SentVector


class SentBatch(Struct):
    """The fields that are read from a response of either format."""

    embeddings: list[SentVector] = []
    usageMetadata: Any = None
    predictions: list[SentPrediction] | None = None


ANSWER = json.Decoder(SentBatch)
ROWS = json.Decoder(list[SentVector])


class GoogleEmbeddings(WrittenCodec):
    """POST {address}/models/{model}:batchEmbedContents, or :predict at Vertex AI.

    `authorize` adds the credential to the headers.
    """

    dialect = dialect.NAME
    waits = True  # for a token

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: EmbeddingsRequest, target: Target) -> Call:
        """Build the call. NotSupported for token ids.

        A service account may need a new token first, which may raise UpstreamRefused or UpstreamFailed.
        """
        content: EmbeddingsInput = request.content()
        require_floats(content)
        if request.token_ids:
            raise NotSupported("This model accepts texts only, no token ids.", param="input", code="unsupported_input")
        enterprise = traits_of(target).enterprise
        write = _predict if enterprise else _batch
        task = dict(request.options.extra.get(dialect.OWN_FIELDS) or {})
        warnings: tuple[str, ...] = ()
        if TASK_TYPE not in task:
            warnings = write_input_type(content.input_type, target.mapping, task)
            prefix = prefix_of(content.input_type, target.mapping)
            if prefix:
                content = structs.replace(content, inputs=tuple(f"{prefix}{text}" for text in content.inputs))
        body = compute_if(request.large, write, content, target, task)
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = headers["accept"] = "application/json"
        self._authorize(headers, target)
        return Call("POST", address_of(target, PREDICT if enterprise else BATCH), headers, body, warnings=warnings)

    def read(self, reply: UpstreamReply, relayed: bool) -> EmbeddingsResult:
        """Return the vectors of a response. UpstreamFailed for an unexpected shape or an empty list."""
        sent = read_apart(ANSWER, reply.read_all(), "embeddings", ROWS)
        try:
            if sent.predictions is None:
                vectors, tokens = _read_batch(sent)
            else:
                vectors, tokens = _read_predictions(sent.predictions)
        except SHAPE_ERRORS:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
        return EmbeddingsResult(read_vectors(vectors), usage=None if tokens is None else Usage(input=tokens))


def _batch(content: EmbeddingsInput, target: Target, task: dict[str, str]) -> bytes:
    """Return the body of a batch; `task` has the task type and the title of its texts, if any."""
    options: dict[str, Any] = dict(task)
    if content.dimensions is not None:
        options["outputDimensionality"] = content.dimensions
    name = target.mapping.external_id
    model = name if "/" in name else f"models/{name}"
    requests = [{"model": model, "content": {"parts": [{"text": text}]}, **options} for text in content.inputs]
    return json.encode({"requests": requests})


def _predict(content: EmbeddingsInput, target: Target, task: dict[str, str]) -> bytes:
    more = {PREDICTED_TASK[name]: value for name, value in task.items()}
    body: dict[str, Any] = {"instances": [{"content": text, **more} for text in content.inputs]}
    if content.dimensions is not None:
        body["parameters"] = {"outputDimensionality": content.dimensions}
    return json.encode(body)


def _read_batch(sent: SentBatch) -> tuple[list[Raw], int | None]:
    """Return the vectors and the number of input tokens, None where the response does not report it."""
    reported = (sent.usageMetadata or {}).get("promptTokenCount")
    return [vector.values for vector in sent.embeddings], None if reported is None else read_count(reported)


def _read_predictions(predictions: list[SentPrediction]) -> tuple[list[Raw], int | None]:
    rows = [prediction.embeddings for prediction in predictions]
    counts = [(row.statistics or {}).get("token_count") for row in rows]
    tokens = None if any(count is None for count in counts) else sum(read_count(count) for count in counts)
    return [row.values for row in rows], tokens
