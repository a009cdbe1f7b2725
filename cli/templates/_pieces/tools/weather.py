"""The tool `weather`: the weather of today at a place, from https://open-meteo.com, which needs no key."""

import json
from urllib.parse import urlencode
from urllib.request import urlopen

DEFINITION = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Return the current weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "A town, for example Paris."}},
            "required": ["place"],
        },
    },
}
PLACES = "https://geocoding-api.open-meteo.com/v1/search"
FORECAST = "https://api.open-meteo.com/v1/forecast"


def run(place: str) -> str:
    places = _get(PLACES, {"name": place, "count": 1}).get("results")
    if not places:
        return f"{place} was not found."
    position = {"latitude": places[0]["latitude"], "longitude": places[0]["longitude"]}
    now = _get(FORECAST, position | {"current": "temperature_2m,wind_speed_10m"})["current"]
    return f"{places[0]['name']}: {now['temperature_2m']} °C, wind {now['wind_speed_10m']} km/h."


def _get(address: str, query: dict[str, object]) -> dict:
    with urlopen(f"{address}?{urlencode(query)}", timeout=10) as answer:
        return json.load(answer)
