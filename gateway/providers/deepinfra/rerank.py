"""Rerank of DeepInfra: POST {address}/inference/{model}, a score for each document in their order.

Facts: HTTP reference, section 3.8: `queries`, `documents`, `scores`, `input_tokens`.
"""

from urllib.parse import quote

from msgspec import json

from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.request import Native
from gateway.neutral.rerank import RerankInput, RerankRequest, RerankResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answers import ODD, SHAPE_ERRORS, read_object
from gateway.providers.openai.address import address_of
from gateway.providers.protocol import Call, Target, UpstreamReply

NAME = "deepinfra"
EACH = "query_for_each"  # of a mapping's `extra`: it wants as many queries as documents


class DeepInfraRerank:
    dialect = NAME
    waits = False

    def write(self, request: RerankRequest, target: Target) -> Call:
        """The call."""
        wanted: RerankInput = request.content()
        count = len(wanted.documents) if target.mapping.extra.get(EACH) else 1
        body = {"queries": [wanted.query] * count, "documents": wanted.documents}
        url, headers = address_of(target, f"/inference/{quote(target.mapping.external_id, safe='/')}")
        headers["content-type"] = headers["accept"] = "application/json"
        return Call("POST", url, headers, json.encode(body))

    def relay(self, native: Native, request: RerankRequest, target: Target) -> Call:
        """No caller speaks this dialect."""
        raise NotSupported("A request in this dialect cannot be relayed.")

    def read(self, reply: UpstreamReply, relayed: bool) -> RerankResult:
        """The scores. UpstreamFailed when they are none."""
        wire = read_object(reply.read_all())
        try:
            scores = tuple((index, float(score)) for index, score in enumerate(wire["scores"]))
            told = wire.get("input_tokens")
            usage = None if told is None else Usage(input=read_count(told))
            return RerankResult(scores, usage, upstream_id=str(wire.get("request_id") or ""))
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
