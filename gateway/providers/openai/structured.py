"""Operations with one JSON answer in OpenAI's format: the body is sent unchanged, with the provider's name of the
model.

Facts: Moderations API reference; Mistral's references of moderations and OCR, whose answers have other members; the
HTTP reference's System One.
"""

from collections.abc import Callable
from typing import Any

from msgspec import json

from gateway.dialects import openai as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.structured import StructuredRequest, StructuredResult
from gateway.neutral.usage import Usage, UsageBasis, read_count
from gateway.providers.answer_checks import ODD, SHAPE_ERRORS, read_object
from gateway.providers.openai.address import Tokens, way_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.written import WrittenCodec

Json = dict[str, Any]
TEXT_ONLY = "text_only"  # of a mapping's `extra`: its moderations take no images


class OpenAIStructured(WrittenCodec):
    """POST {address}{path}. `answers` is the list or object that an answer must have, `fit` is applied to a body first
    (NotSupported), `mend` to an answer."""

    dialect = dialect.NAME

    def __init__(
        self,
        path: str,
        answers: str,
        tokens: Tokens | None = None,
        fit: Callable[[Json, Target], Json] | None = None,
        mend: Callable[[Json], None] | None = None,
    ) -> None:
        self._path = path
        self._answers = answers
        self._tokens = tokens
        self._fit = fit
        self._mend = mend

    def write(self, request: StructuredRequest, target: Target) -> Call:
        """The call with the body under the model's name at the provider."""
        body: Json = request.content()
        if self._fit is not None:
            body = self._fit(body, target)
        way = way_of(target, self._path, False, self._tokens)
        sent = json.encode({**body, "model": target.mapping.external_id})
        return Call("POST", way.url, way.headers, sent, way=way)

    def read(self, reply: UpstreamReply, relayed: bool) -> StructuredResult:
        """The answer. UpstreamFailed when what it cannot do without is not there."""
        wire = read_object(reply.read_all())
        try:
            if not wire[self._answers]:
                raise ValueError("empty")
            if self._mend is not None:
                self._mend(wire)
            model = wire.pop("model", "")
            ident = wire.pop("id", "")
            usage = read_usage(wire.pop("usage", None), wire.get("usage_info"), wire.get("pages"))
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
        return StructuredResult(
            wire,
            usage=usage,
            model=model if isinstance(model, str) else "",
            upstream_id=ident if isinstance(ident, str) else "",
        )


def fit_moderations(body: Json, target: Target) -> Json:
    """Texts alone where the model reads nothing else."""
    if target.mapping.extra.get(TEXT_ONLY) and isinstance(body["input"], list):
        if any(isinstance(one, dict) and one.get("type") != "text" for one in body["input"]):
            raise NotSupported(f"{target.mapping.key} judges texts alone.", param="input", code="unsupported_input")
        return {**body, "input": [one["text"] if isinstance(one, dict) else one for one in body["input"]]}
    return body


def mend_moderations(wire: Json) -> None:
    """A verdict that does not say whether anything was flagged has the answer among its categories."""
    for one in wire["results"]:
        one.setdefault("flagged", any(one["categories"].values()))


def read_usage(reported: Json | None, pages: Json | None, answered: Any = None) -> Usage | None:
    """Tokens, pages, or both; None where neither is given. The pages that were `answered` count where their number is
    not reported."""
    if pages:
        counted = read_count(pages.get("pages_processed"))
    else:
        counted = 0
    basis: UsageBasis = "provider"
    if not counted and isinstance(answered, list):
        counted = len(answered)
        basis = "estimated"
    if not reported:
        if counted:
            return Usage(pages=counted, basis=basis)
        return None
    read = reported.get("input_tokens", reported.get("prompt_tokens", reported.get("total_tokens")))
    output = reported.get("output_tokens", reported.get("completion_tokens"))
    return Usage(input=read_count(read), output=read_count(output), pages=counted, basis=basis)
