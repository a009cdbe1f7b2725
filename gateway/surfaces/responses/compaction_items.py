"""The answer to a request for a compaction (`compaction_trigger`): its text as one sealed item, as the server of this
dialect writes it. Each model can read it in a later request."""

from gateway.dialects import responses_vocabulary as dialect
from gateway.errors import UpstreamFailed
from gateway.neutral.events import Event, PartFound, TextDelta
from gateway.neutral.parts import VendorPart
from gateway.surfaces.responses.assembler import COMPLETED, Assembler
from gateway.surfaces.responses.opaque_tokens import seal_summary
from gateway.surfaces.responses.response_answers import ResponseEvent

NO_SUMMARY = "The provider returned no summary."
COMPACTION = "compaction"


class CompactionAssembler(Assembler):
    """Collects the text of an answer and shows it when it ends. A server of this dialect sends the item itself."""

    _summary = ""

    def add(self, event: Event) -> list[ResponseEvent]:
        if isinstance(event, TextDelta):
            self._summary += event.text
        elif isinstance(event, PartFound) and _is_compaction(event):
            return super().add(event)
        return []

    def finish(self, status: str) -> list[ResponseEvent]:
        """Return the events of the item; a summary that was cut is none. Raises UpstreamFailed for an empty answer."""
        if self.items or status != COMPLETED:
            return []
        summary = self._summary.strip()
        if not summary:
            raise UpstreamFailed(NO_SUMMARY)
        return self.add_whole({"type": COMPACTION, "encrypted_content": seal_summary(summary)})


def _is_compaction(event: PartFound) -> bool:
    part = event.part
    return isinstance(part, VendorPart) and part.vendor == dialect.NAME and part.kind == COMPACTION
