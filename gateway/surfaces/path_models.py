"""A model that is named in the path of a request, as clients of Azure do, instead of in its body."""

import re
from collections.abc import Callable

import orjson

from gateway.surfaces.http import Inbound, Outbound

Handler = Callable[[Inbound], Outbound]

# The environ's key for the model in the path that the caller used.
PATH_MODEL = "gateway.path_model"
START_OF_OBJECT = re.compile(rb"\s*{(\s*\Z)?")


def use_path_model(handler: Handler, model: str) -> Handler:
    """Return `handler` for requests to a path that names `model`."""

    def handle(inbound: Inbound) -> Outbound:
        inbound.body = set_model(inbound.body, model)
        return handler(inbound)

    return handle


def set_model(body: bytes, model: str) -> bytes:
    """Return a JSON object with `model` as its last member, which takes precedence over an earlier one, as the path
    does at Azure. Any other body is returned as it is."""
    end = body.rfind(b"}")
    start = START_OF_OBJECT.match(body, 0, max(end, 0))
    if start is None or body[end + 1 :].strip():
        return body
    comma = b"" if start[1] is not None else b","
    # A large body is copied only once.
    return b"".join((memoryview(body)[:end], comma, b'"model":', orjson.dumps(model), b"}"))
