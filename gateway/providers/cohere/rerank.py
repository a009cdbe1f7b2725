"""Rerank of Cohere's second API, billed by search units.

Facts: API reference, v2 "Rerank": meta.billed_units.search_units.
"""

from msgspec import json

from gateway.dialects import cohere as dialect
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.request import Native
from gateway.neutral.rerank import RerankInput, RerankRequest, RerankResult
from gateway.neutral.usage import Usage, read_count
from gateway.providers.answers import ODD, SHAPE_ERRORS, read_object
from gateway.providers.openai.address import address_of
from gateway.providers.openai.rerank import read_scores
from gateway.providers.protocol import Call, Target, UpstreamReply

PATH = "/rerank"


class CohereRerank:
    """POST {address}/rerank."""

    dialect = dialect.NAME
    waits = False

    def write(self, request: RerankRequest, target: Target) -> Call:
        """The call."""
        wanted: RerankInput = request.content()
        body = {"model": target.mapping.external_id, "query": wanted.query, "documents": wanted.documents}
        url, headers = address_of(target, PATH)
        headers["content-type"] = headers["accept"] = "application/json"
        return Call("POST", url, headers, json.encode(body))

    def relay(self, native: Native, request: RerankRequest, target: Target) -> Call:
        """No caller speaks this dialect."""
        raise NotSupported("A request in this dialect cannot be relayed.")

    def read(self, reply: UpstreamReply, relayed: bool) -> RerankResult:
        """The scores and the units. UpstreamFailed when they are none."""
        wire = read_object(reply.read_all())
        try:
            units = ((wire.get("meta") or {}).get("billed_units") or {}).get("search_units")
            usage = None if units is None else Usage(searches=read_count(units))
            return RerankResult(read_scores(wire["results"]), usage, upstream_id=str(wire.get("id") or ""))
        except SHAPE_ERRORS:
            raise UpstreamFailed(ODD, upstream_status=200) from None
