"""The tool `clock`: the time in a time zone."""

from datetime import datetime
from zoneinfo import ZoneInfo

DEFINITION = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Return the current date and time.",
        "parameters": {
            "type": "object",
            "properties": {
                "zone": {
                    "type": "string",
                    "description": "An IANA time zone, for example Europe/Paris.",
                    "default": "UTC",
                }
            },
        },
    },
}


def run(zone: str = "UTC") -> str:
    return datetime.now(ZoneInfo(zone)).isoformat(timespec="seconds")
