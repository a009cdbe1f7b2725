"""countTokens: a local estimate, without an upstream call and without a tokenizer."""

from gateway.surfaces.answer_structs import Answer
from gateway.surfaces.google import schema
from gateway.surfaces.google.reader import PromptFacts
from gateway.surfaces.token_estimates import estimate_tokens

TEXT = "TEXT"


class ModalityTokensAnswer(Answer):
    modality: str
    token_count: int


class GeminiTokenCountAnswer(Answer):
    total_tokens: int
    prompt_tokens_details: list[ModalityTokensAnswer]


def estimate(raw: bytes) -> int:
    """Return the estimated tokens of a body with contents or with a whole request. Raises InvalidRequest."""
    wire = schema.decode_names(raw)
    body: schema.CountTokensBody = schema.convert(wire, schema.CountTokensBody)
    counted = body.generateContentRequest or body
    facts = PromptFacts(counted, wire.get("generateContentRequest") or wire)
    images = facts.images + facts.earlier_images
    return estimate_tokens(facts.text, len(counted.contents), images, facts.files + facts.audio, bool(counted.tools))


def write(tokens: int) -> GeminiTokenCountAnswer:
    """Return the response."""
    return GeminiTokenCountAnswer(tokens, [ModalityTokensAnswer(TEXT, tokens)])
