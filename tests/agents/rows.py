"""Usage rows of a gateway of these tests."""

import sqlite3

from support.gateways import GatewayProcess


def usage_of(gateway: GatewayProcess) -> list[tuple]:
    """(provider, tokens, nano-dollars) of every settled attempt."""
    store = sqlite3.connect(f"file:{gateway.data}/gateway.db?mode=ro", uri=True)
    rows = store.execute('SELECT provider, input + output, cost_nusd FROM "usage" ORDER BY at').fetchall()
    store.close()
    return rows
