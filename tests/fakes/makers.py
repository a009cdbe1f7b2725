"""One stand-in of several makers: each operation goes to the strict stand-in that has it.

with FakeMakers() as upstream:
    ... call upstream.url + "/embeddings", "/images/generations", "/audio/speech", "/moderations", "/rerank" ...
"""

from collections.abc import Iterable
from typing import Any

from fakes.embedders import FakeEmbedders
from fakes.hearers import FakeHearers
from fakes.judges import FakeJudges
from fakes.painters import FakePainters
from fakes.server import FakeServer
from fakes.speakers import FakeSpeakers


class FakeMakers(FakeServer):
    base = "/v1"

    def __init__(self) -> None:
        super().__init__()
        hearers = FakeHearers()
        self._parts: dict[str, FakeServer] = {
            "/embeddings": FakeEmbedders(),
            "/images/": FakePainters(),
            "/audio/speech": FakeSpeakers(),
            "/audio/transcriptions": hearers,
            "/audio/translations": hearers,
            "/": FakeJudges(),
        }

    @property
    def problems(self) -> list[str]:
        """Why requests were refused."""
        return [call.problem for part in self._parts.values() for call in part.calls if call.problem]

    def serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        part = next(part for path, part in self._parts.items() if path in environ["PATH_INFO"])
        return part.serve(environ, start)
