"""POST /api/conversation: the answer to a conversation, as plain text while it is written."""

import os
from collections.abc import Iterator

from connection import connect
from flask import Blueprint, Response, request

blueprint = Blueprint("conversation", __name__)


@blueprint.post("/api/conversation")
def converse() -> Response:
    messages = request.get_json()["messages"]
    stream = connect().chat.completions.create(model=os.environ["CHAT_MODEL"], messages=messages, stream=True)

    def texts() -> Iterator[str]:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    return Response(texts(), mimetype="text/plain")
