"""An agent that calls the functions in `tools`: python agent.py "What time is it?" """

import json
import os
import sys
from typing import Any

from connection import connect
from tools import TOOLS, call_tool

MAX_TURNS = 8
QUESTION = "Call the clock. What time is it?"
INSTRUCTIONS = "You are a helpful assistant. Use the tools where they help."


def answer(question: str) -> str:
    """Run the tool calls of the model and return its answer."""
    client = connect()
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        completion = client.chat.completions.create(
            model=os.environ["CHAT_MODEL"], messages=messages, tools=[tool.definition for tool in TOOLS.values()]
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            print(f"→ {call.function.name}({call.function.arguments})", file=sys.stderr)
            result = call_tool(call.function.name, json.loads(call.function.arguments or "{}"))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise SystemExit(f"The model still called tools after {MAX_TURNS} turns.")


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or QUESTION))
