"""What a process of pytest tells the one that handed it a test: how the test itself went, and little else.

For each test five messages would be written, read and put together again, most of what an empty test costs. Those that
leave no trace in what pytest prints stay here: that it begins, that it is over (but for the last of the process, which
ends the last line), and a fixture's start or end that passed at once.
"""

from typing import Any

import pytest

# From here on `--durations` lists a start or an end of fixtures.
LISTED_S = 0.005


def cut_down(message: str, told: dict[str, Any], last: bool) -> bool:
    """Whether anybody reads this message of a process. `told`, what it says, loses what nobody reads."""
    if message != "testreport":
        return message != "logstart" and (message != "logfinish" or last)
    report = told["data"]
    if report["outcome"] != "passed":
        return True
    report["keywords"] = {}
    return bool(
        report["when"] == "call" or report["duration"] >= LISTED_S or report["sections"] or report["user_properties"]
    )


def keep_brief(config: pytest.Config) -> None:
    """Let this process send only what is read; all is sent where pytest was asked to tell more (-v)."""
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "torun") and hasattr(plugin, "sendevent") and config.get_verbosity() <= 0:
            plugin.sendevent = _send_what_is_read(plugin)


def _send_what_is_read(plugin: Any) -> Any:
    send = plugin.sendevent

    def send_event(name: str, **told: Any) -> None:
        if cut_down(name, told, last=not isinstance(plugin.nextitem_index, int)):
            send(name, **told)

    return send_event
