"""The tool `search`: the articles of Wikipedia that match some words."""

import json
import re
from urllib.parse import urlencode
from urllib.request import Request, urlopen

DEFINITION = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search Wikipedia and return titles and excerpts.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "The words to search for."}},
            "required": ["query"],
        },
    },
}
ADDRESS = "https://en.wikipedia.org/w/api.php"
AGENT = "{{name}}/0.1"


def run(query: str) -> str:
    query_parameters = {"action": "query", "list": "search", "srsearch": query, "srlimit": 5, "format": "json"}
    request = Request(f"{ADDRESS}?{urlencode(query_parameters)}", headers={"User-Agent": AGENT})
    with urlopen(request, timeout=10) as answer:
        entries = json.load(answer)["query"]["search"]
    if not entries:
        return "Nothing was found."
    return "\n".join(f"{entry['title']}: {re.sub('<[^>]*>', '', entry['snippet'])}" for entry in entries)
