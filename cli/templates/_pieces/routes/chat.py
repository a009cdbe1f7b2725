"""POST /api/chat: {"message": "…"} → {"answer": "…"}, the answer of a model to one message."""

import os

from connection import connect
from flask import Blueprint, jsonify, request
from flask.typing import ResponseReturnValue

blueprint = Blueprint("chat", __name__)
MODEL = os.environ.get("CHAT_MODEL", "sandbox-echo")


@blueprint.post("/api/chat")
def chat() -> ResponseReturnValue:
    body = request.get_json()
    if not isinstance(body.get("message"), str):
        return jsonify(error="The body needs a `message`."), 400
    messages = [{"role": "user", "content": body["message"]}]
    completion = connect().chat.completions.create(model=MODEL, messages=messages)
    return jsonify(answer=completion.choices[0].message.content)
