"""Sends one request whose answer uses the unit of docs/extending/price-unit.md, and prints the results.

It runs as a program because units are read when modules load: test_contributing.py starts it with a copy of the package
that contains the new row.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from fakes.server import FakeServer, send_json  # noqa: E402
from support.gateways import local_gateway  # noqa: E402

from gateway.clock import HOUR_US  # noqa: E402
from gateway.configuration import settings  # noqa: E402
from gateway.metering.activity import Owners, Span, measure  # noqa: E402
from gateway.metering.figures import FIGURES  # noqa: E402
from gateway.metering.rollups.job import Rollups  # noqa: E402
from gateway.metering.rollups.queries import at_once  # noqa: E402
from gateway.surfaces.visitors.usage_report import write_figures  # noqa: E402

ITEMS = [
    {"type": "acme_lookup_call", "id": "acl_1", "status": "completed"},
    {"type": "acme_lookup_call", "id": "acl_2", "status": "completed"},
]
TEXT = {"type": "output_text", "text": "Found.", "annotations": [], "logprobs": []}
MESSAGE = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [TEXT]}
USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
}


class Index(FakeServer):
    """The service of the example."""

    base = "/v1"

    def serve(self, environ, start):
        self.calls.append(json.loads(environ["wsgi.input"].read()))
        answer = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "acme-index-1"}
        return send_json(start, 200, answer | {"output": [*ITEMS, MESSAGE], "usage": USAGE})


def drive(folder: Path) -> dict:
    def make_settings(**environment: str) -> settings.Settings:
        return settings.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data")} | environment)

    with Index() as service:
        environment = {"ACME_INDEX_KEY": "key", "LLM_ACME_INDEX_BASE_URL": service.url}
        with local_gateway(make_settings, GATEWAY_CATALOGUE_PATH=str(folder / "catalogue"), **environment) as gateway:
            client = gateway.app.flask.test_client()
            headers = {"Authorization": f"Bearer {gateway.key}"}
            body = {
                "model": "acme-index",
                "input": "Where?",
                "tools": [{"type": "acme_lookup"}],
                "max_output_tokens": 9,
            }
            answer = client.post("/v1/responses", json=body, headers=headers).json
            models = client.get("/v1/models", headers=headers).json["data"]
            database = gateway.services.store.database
            Rollups(database).catch_up()
            hour = database.now_us() // HOUR_US
            owners = Owners((gateway.project_id,))
            rows = at_once(
                database, lambda: measure(database, owners, Span(hour - 1, hour + 1, "all"), "total", FIGURES)
            )
        return {
            "tools": service.calls[0]["tools"],
            "answer": answer,
            "pricing": next(model["pricing"] for model in models if model["id"] == "acme-index"),
            "activity": write_figures(rows[0].figures),
        }


print(json.dumps(drive(Path(sys.argv[1]))))
