from gateway.neutral.events import BlockDone, ReasoningDelta, TextDelta, ToolCallDelta
from gateway.surfaces.responses.assembler import Assembler


def test_an_item_is_done_when_its_block_ends_and_not_with_the_response() -> None:
    """Clients run a function as soon as its item is done."""
    assembler = Assembler("resp_1", {}, "")
    events = [
        ReasoningDelta("I think.", block=0),
        BlockDone(0),
        ToolCallDelta(1, '{"a": 1}', id="call_1", name="f"),
        BlockDone(1),
        ToolCallDelta(2, "{}", id="call_2", name="g"),
    ]
    done = [
        [shown["item"]["type"] for shown in assembler.add(event) if shown["type"] == "response.output_item.done"]
        for event in events
    ]
    assert done == [[], ["reasoning"], [], ["function_call"], []]
    assert assembler.add(BlockDone(7)) == [] != assembler.add(TextDelta("Hello"))
