"""A fake of several vendors, which passes each operation to the strict fake of its vendor.

with FakeVendors() as upstream:
    ... call upstream.url + "/embeddings", "/images/generations", "/audio/speech", "/moderations", "/rerank" ...
"""

from collections.abc import Iterable
from typing import Any

from fakes.embedding_services import FakeEmbeddingServices
from fakes.image_services import FakeImageServices
from fakes.server import FakeServer
from fakes.speech_services import FakeSpeechServices
from fakes.structured_services import FakeStructuredServices
from fakes.transcription_services import FakeTranscriptionServices


class FakeVendors(FakeServer):
    base = "/v1"

    def __init__(self) -> None:
        super().__init__()
        hearers = FakeTranscriptionServices()
        self._parts: dict[str, FakeServer] = {
            "/embeddings": FakeEmbeddingServices(),
            "/images/": FakeImageServices(),
            "/audio/speech": FakeSpeechServices(),
            "/audio/transcriptions": hearers,
            "/audio/translations": hearers,
            "/": FakeStructuredServices(),
        }

    @property
    def problems(self) -> list[str]:
        """The reasons of refused requests."""
        return [call.problem for part in self._parts.values() for call in part.calls if call.problem]

    def serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        part = next(part for path, part in self._parts.items() if path in environ["PATH_INFO"])
        return part.serve(environ, start)
