"""A provider with a batch API for many lines, in a process of its own, so that it takes no time of the test.

    with BatchProvider() as provider:
        ... batches at provider.url ...
        provider.counts()["accepted"]  # how often each mark was in the lines of a batch that was created

A batch runs by itself, line by line. One of STRICT lines passes all checks of an ordinary request.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import gevent
import httpx
from fakes import openai as openai_fake
from fakes.batch_desk import KeptBatch
from fakes.openai_batches import FakeOpenAIBatches
from fakes.server import RecordedCall, send_json

STRICT = 10
TURN = 20  # lines between two answers to calls


class ManyLines(FakeOpenAIBatches):
    """The service. `faults` are the attributes of its desk that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.desk.advance = lambda *unused: None  # type: ignore[method-assign]  # a batch runs by itself
        self._seen = 0
        self._accepted: Counter[str] = Counter()
        self._tokens = [0, 0]
        self._direct = 0

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        path = environ["PATH_INFO"]
        self.calls.clear()
        if path == "/counts":
            shown = {
                "accepted": self._accepted,
                "tokens": self._tokens,
                "direct": self._direct,
                "batches": len(self.desk.batches),
                "working": sum(one.state == "working" for one in self.desk.batches.values()),
            }
            return send_json(start, 200, shown)
        if path == "/faults":
            for name, value in json.loads(environ["wsgi.input"].read()).items():
                if name == "forget":
                    self.desk.forget()
                else:
                    setattr(self.desk, name, value)
            return send_json(start, 200, {})
        if path == "/v1/chat/completions":
            self._direct += 1
        return super().serve(environ, start)

    def _create(self, body: dict[str, Any]) -> KeptBatch:
        batch = super()._create(body)
        for _, line in batch.lines:
            self._accepted[line["messages"][0]["content"]] += 1
        gevent.spawn(self._run, batch)
        return batch

    def _run(self, batch: KeptBatch) -> None:
        desk = self.desk
        for place, (custom_id, line) in enumerate(batch.lines):
            while desk.held:
                gevent.sleep(0.1)
            if place % TURN == 0:
                gevent.sleep(0)
            if batch.state != "working":
                return
            batch.results[custom_id] = self.answer_line(batch.body["endpoint"], line)
        batch.state = "ended"

    def answer_line(self, endpoint: str, body: dict[str, Any]) -> tuple[int, Any]:
        self._seen += 1
        if self._seen % STRICT == 0:
            status, answer = super().answer_line(endpoint, body)
        else:
            call = RecordedCall("line", {}, body)
            said = openai_fake.Answer("Hello.")
            call.usage = openai_fake._usage(said, body)
            status, answer = 200, openai_fake._whole(said, call)
        self._tokens[0] += answer["usage"]["prompt_tokens"]
        self._tokens[1] += answer["usage"]["completion_tokens"]
        return status, answer


class BatchProvider:
    """The process of the provider."""

    def __enter__(self) -> Self:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-m", "support.batch_provider"]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.url = f"{self.address}/v1"
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate()

    def counts(self) -> Any:
        return httpx.get(f"{self.address}/counts", timeout=60).json()

    def set(self, **faults: Any) -> None:
        """Set attributes of the desk; `forget=True` forgets all batches."""
        httpx.post(f"{self.address}/faults", json=faults, timeout=60).raise_for_status()


if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()
    with ManyLines() as fake:
        print(fake.address, flush=True)
        while True:
            gevent.sleep(3600)
