"""A maker with both of its APIs at one address: chat completions and responses, each its own strict stand-in.

with FakeMaker() as maker:
    maker.chat.script(...)
    maker.responses.script(...)
    ... call maker.url + "/chat/completions" or maker.url + "/responses" ...
"""

from collections.abc import Iterable
from typing import Any

from fakes.openai import FakeOpenAI
from fakes.responses import FakeResponses
from fakes.responses_checks import PATH
from fakes.server import FakeServer


class FakeMaker(FakeServer):
    """The service; `chat` and `responses` record their own requests and are scripted apart."""

    base = "/v1"

    def __init__(self) -> None:
        super().__init__()
        self.chat = FakeOpenAI()
        self.responses = FakeResponses()

    def serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        one = self.responses if environ["PATH_INFO"] == PATH else self.chat
        return one.serve(environ, start)
