"""Fixed metadata of a message."""

from types import SimpleNamespace
from typing import Any

from gateway.neutral.request import Requirements
from gateway.neutral.usage import Usage


class MessageFacts:
    answer_id = "msg_ours"
    requested_model = "acme/model-1:eu"
    hides_reasoning = False
    usage = Usage(input=30, cache_read=60, cache_write=5, cache_write_1h=10, output=50, reasoning=20, searches=2)
    context = SimpleNamespace(shown_id="r1")
    outcome = SimpleNamespace(request=SimpleNamespace(requirements=Requirements(prompt_bytes=35, messages=1)))

    def cost(self) -> dict[str, Any]:
        return {"cost": 0.5, "is_byok": False, "cost_details": {"total_cost": 0.5}}

    def metadata(self) -> dict[str, Any]:
        return {"request_id": "r1", "routing": []}
