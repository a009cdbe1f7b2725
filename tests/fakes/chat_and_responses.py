"""A vendor with both of its APIs at one address: chat completions and responses, each its own strict fake.

with FakeVendor() as vendor:
    vendor.chat.script(...)
    vendor.responses.script(...)
    ... call vendor.url + "/chat/completions" or vendor.url + "/responses" ...
"""

from collections.abc import Iterable
from typing import Any

from fakes.openai import FakeOpenAI
from fakes.responses import FakeResponses
from fakes.responses_checks import PATH
from fakes.server import FakeServer


class FakeVendor(FakeServer):
    """The service; `chat` and `responses` record their own requests and are scripted apart."""

    base = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.chat = FakeOpenAI()
        self.responses = FakeResponses()

    def serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        one = self.responses if environ["PATH_INFO"] == PATH else self.chat
        return one.serve(environ, start)
