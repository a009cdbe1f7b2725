"""OpenAI's agents for Python as their users run one: python drive_agents.py <address of the gateway> <key>. Prints the
kinds of the events that a session had, and its errors."""

import asyncio
import json
import sys

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

address, key = sys.argv[1:]


@function_tool
def weather(place: str) -> str:
    """The weather of a place."""
    return "sunny"


async def main() -> None:
    agent = RealtimeAgent(name="Greeter", instructions="Be brief.", tools=[weather])
    url = f"{address.replace('http', 'ws')}/v1/realtime?model=gpt-realtime-2.1"
    session = await RealtimeRunner(agent).run(model_config={"api_key": key, "url": url})
    kinds: list[str] = []
    errors: list[str] = []
    async with session:
        await session.send_message("Hello")
        await session.send_audio(bytes(4800), commit=True)
        async with asyncio.timeout(20):
            async for event in session:
                if event.type == "error":
                    errors.append(str(event.error))
                data = getattr(event, "data", None)
                raw = getattr(data, "data", None) if data is not None else None
                if isinstance(raw, dict):
                    kinds.append(raw.get("type", ""))
                if "response.done" in kinds and "input_audio_buffer.committed" in kinds:
                    break
    print(json.dumps({"kinds": kinds, "errors": errors}))


asyncio.run(main())
