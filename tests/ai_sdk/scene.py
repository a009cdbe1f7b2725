"""A whole scene for the SDKs: gateway, vendors, majors, and what is seen of each."""

import sqlite3
import time
from dataclasses import dataclass
from typing import Any

import gevent
from ai_sdk.clients import Sdk
from contract.vendors import VENDORS, Say
from support.gateways import GatewayProcess

PATIENCE_S = 5.0


@dataclass
class Scene:
    gateway: GatewayProcess
    fakes: dict[str, Any]
    sdks: dict[int, Sdk]

    def script(self, vendor: str, *says: Say) -> None:
        """Set the vendor's next answers, in order, and clear its recorded calls."""
        fake = self.fakes[vendor]
        fake.calls.clear()
        fake._script.clear()
        fake.script(*(VENDORS[vendor].script(say) for say in says))

    def bodies_sent_to(self, vendor: str) -> list[Any]:
        """Return the vendor's requests; the real service would accept every one of them."""
        calls = self.fakes[vendor].calls
        assert [call.problem for call in calls if call.problem] == []
        return [call.body for call in calls]

    def rows(self, expected: int = -1) -> list[tuple]:
        """(request, provider, finish, cost) of all attempts, once there are as many as expected."""
        until = time.monotonic() + PATIENCE_S
        while True:
            with sqlite3.connect(f"file:{self.gateway.data}/gateway.db?mode=ro", uri=True) as store:
                rows = store.execute('SELECT request, provider, finish, cost_nusd FROM "usage" ORDER BY at').fetchall()
            if len(rows) >= expected or time.monotonic() > until:
                return rows
            gevent.sleep(0.05)
