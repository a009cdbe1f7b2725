"""Calls the gateway with the clients of Groq, LangChain and Cohere; prints what they got as JSON."""

import json
import sys

import cohere
from groq import Groq
from langchain_groq import ChatGroq

ADDRESS, KEY = sys.argv[1:]
MODEL = "sandbox/sandbox-echo"
HELLO = [{"role": "user", "content": "Hello"}]
RANKED = {"model": "sandbox/sandbox-rerank", "query": "red fox", "documents": ["a hare", "a red fox"], "top_n": 1}
EMBEDDED = {"model": "sandbox/sandbox-embed", "texts": ["a hare", "a red fox"], "input_type": "search_query"}

LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALLING = {
    "model": MODEL,
    "messages": HELLO,
    "tools": [{"type": "function", "function": LOOK}],
    "tool_choice": "REQUIRED",
}


def call_tool():
    """Send the result of a tool as Cohere's guide does, and return the answer."""
    called = cohere_v2.chat(**CALLING)
    result = {"type": "document", "document": {"data": {"weather": "rain"}}}
    results = [{"role": "tool", "tool_call_id": call.id, "content": [result]} for call in called.message.tool_calls]
    messages = [*HELLO, called.message, *results]
    return cohere_v2.chat(model=MODEL, messages=messages, tools=CALLING["tools"]).message.content[0].text


def streamed_kinds():
    """The kinds of the events of a streamed call of a tool, each once."""
    return list(dict.fromkeys(event.type for event in cohere_v2.chat_stream(**CALLING)))


cohere_v2 = cohere.ClientV2(api_key=KEY, base_url=ADDRESS)
pieces = cohere_v2.chat_stream(model=MODEL, messages=HELLO)
groq = Groq(api_key=KEY, base_url=ADDRESS)
chunks = groq.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
print(
    json.dumps(
        {
            "complete": groq.chat.completions.create(model=MODEL, messages=HELLO).choices[0].message.content,
            "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
            "langchain": ChatGroq(model=MODEL, api_key=KEY, base_url=ADDRESS).invoke("Hello").content,
            "chat": cohere_v2.chat(model=MODEL, messages=HELLO).message.content[0].text,
            "chat_stream": "".join(e.delta.message.content.text for e in pieces if e.type == "content-delta"),
            "chat_tools": call_tool(),
            "chat_events": streamed_kinds(),
            "rerank": [row.index for row in cohere_v2.rerank(**RANKED).results],
            "embed": len(cohere_v2.embed(**EMBEDDED).embeddings.float_),
            "embed_v1": len(cohere.Client(api_key=KEY, base_url=ADDRESS).embed(**EMBEDDED).embeddings),
            "rerank_v1": [row.index for row in cohere.Client(api_key=KEY, base_url=ADDRESS).rerank(**RANKED).results],
        }
    )
)
