"""An identity provider that publishes its keys over HTTP, and signs tokens with the current one."""

from collections.abc import Iterable
from typing import Any

from fakes.server import FakeServer, Start, send_json
from support.issuers import Issuer, make_key

KEY = make_key("one")


class FakeIssuer(FakeServer):
    """An identity provider with discovery. `key` is the only one that it publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.key = KEY

    @property
    def provider(self) -> Issuer:
        return Issuer(self.address, self.key)

    def serve(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        url = self.address + environ["PATH_INFO"]
        self.calls.append(url)
        documents = self.provider.documents()
        return send_json(start, 200 if url in documents else 404, documents.get(url, {}))
