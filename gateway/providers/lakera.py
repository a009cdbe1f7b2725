"""Lakera Guard's `/v2/guard`: attacks on prompts, personal data and harmful content by the policy of a project.

Wire facts: Lakera Guard API, `/v2/guard` (`messages`, `project_id`, `breakdown`, `payload`).
"""

from typing import Any

import orjson

from gateway.guardrails.checkers import FoundValue, checked_kind
from gateway.providers.checker_calls import CheckCall, CheckRequest, Verdicts

ROLES = {"input": "user", "tool": "tool", "answer": "assistant"}


def calls(request: CheckRequest) -> list[CheckCall]:
    """Return a call for each piece."""
    checker = request.checker
    headers = {"content-type": "application/json", "authorization": f"Bearer {request.credential}"}
    members: dict[str, Any] = {"breakdown": True, "payload": True}
    if checker.setting("project"):
        members["project_id"] = checker.setting("project")
    url = f"{checker.address.rstrip('/')}/v2/guard"
    return [
        CheckCall(
            (piece,),
            url,
            headers,
            orjson.dumps({"messages": [{"role": ROLES[piece.role], "content": piece.text}], **members}),
            _read,
        )
        for piece in request.pieces
    ]


def _read(answer: Any) -> Verdicts:
    if not isinstance(answer["flagged"], bool):
        raise ValueError
    if not answer["flagged"]:
        return [[]]
    placed = [
        FoundValue(checked_kind(one["detector_type"]), int(one["start"]), int(one["end"]))
        for one in answer.get("payload") or ()
    ]
    known = {one.kind for one in placed}
    detected = [one["detector_type"] for one in answer.get("breakdown") or () if one["detected"]]
    others = [FoundValue(checked_kind(kind)) for kind in detected if checked_kind(kind) not in known]
    return [[*placed, *others] or [FoundValue("flagged")]]
