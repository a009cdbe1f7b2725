"""The events of a streamed message as frames, and the numbering of its blocks."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.surfaces.anthropic.message_answers import BlockChange, BlockDelta, BlockStart, BlockStop, ContentBlock


def frame(event: Mapping[str, Any]) -> bytes:
    """Return one server-sent event, named by its type."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


class BlockFramer:
    """Numbers the blocks and writes the events of the open one."""

    def __init__(self) -> None:
        self._index = -1

    def start(self, shown: ContentBlock) -> bytes:
        self._index += 1
        event: BlockStart = {"type": "content_block_start", "index": self._index, "content_block": shown}
        return frame(event)

    def change(self, delta: BlockChange) -> bytes:
        event: BlockDelta = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return b"event: content_block_delta\ndata: %b\n\n" % orjson.dumps(event)

    def stop(self) -> bytes:
        event: BlockStop = {"type": "content_block_stop", "index": self._index}
        return frame(event)

    def lone(self, shown: ContentBlock) -> bytes:
        """Return the events of a block that arrives complete: clients still expect text and signature in a delta."""
        if shown["type"] == "text":
            text = self.start({**shown, "text": ""}) + self.change({"type": "text_delta", "text": shown["text"]})
            return text + self.stop()
        if shown["type"] == "thinking":
            signature: BlockChange = {"type": "signature_delta", "signature": shown["signature"]}
            return self.start({**shown, "signature": ""}) + self.change(signature) + self.stop()
        return self.start(shown) + self.stop()
