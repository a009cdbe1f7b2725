from typing import get_args

from openai.types import (
    ImageEditCompletedEvent,
    ImageEditPartialImageEvent,
    ImageGenCompletedEvent,
    ImageGenPartialImageEvent,
)

from gateway.surfaces.openai.images import COMPLETED, IMAGE_OPERATIONS, PARTIAL


def test_events_have_the_types_of_openais_library() -> None:
    events = (ImageEditCompletedEvent, ImageEditPartialImageEvent, ImageGenCompletedEvent, ImageGenPartialImageEvent)
    types = {get_args(event.model_fields["type"].annotation)[0] for event in events}
    assert types == {f"{operation}.{step}" for operation in IMAGE_OPERATIONS for step in (PARTIAL, COMPLETED)}
