"""Real coding agents write a file through the gateway: each client on every upstream format."""

import json
import sqlite3
from pathlib import Path

import pytest
from agents.clients import CLIENTS, Gateway, Run
from agents.upstreams import Job, Model, Place
from gateways import GatewayProcess


def usage_of(gateway: GatewayProcess) -> list[tuple]:
    """(provider, operation, source, input, output, nano-dollars, finish) of every settled attempt."""
    store = sqlite3.connect(f"file:{gateway.data}/gateway.db?mode=ro", uri=True)
    columns = "provider, operation, source, input, output, cost_nusd, finish"
    with store:
        return store.execute(f'SELECT {columns} FROM "usage" ORDER BY at').fetchall()


def account(upstream: Model, run: Run, gateway: GatewayProcess) -> str:
    """All that one needs to see where it went wrong."""
    calls = [f"{c.status} {c.problem} {json.dumps(c.body)[:1500] if c.status != 200 else ''}" for c in upstream.calls]
    return "\n".join([f"exit {run.code}", run.out[-2000:], run.err[-3000:], *calls, gateway.log()[-2000:]])


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_writes_a_file_with_its_own_tools(
    client: str, place: Place, programs: dict[str, Path], job: Job, upstream: Model, gateway: GatewayProcess
) -> None:
    home, user = Path(job.folder).parent / "home", Gateway(gateway.address, gateway.key)
    prompt = f"Write the file {job.name} with this text: {job.text}"
    run = CLIENTS[client].run(programs[client], home, Path(job.folder), user, place.model, prompt)
    told = account(upstream, run, gateway)
    assert run.code == 0, told
    assert Path(job.path).is_file(), told
    assert Path(job.path).read_text().strip() == job.text, told
    assert not [call.problem for call in upstream.calls if call.status != 200], told
    rows = usage_of(gateway)
    assert len(rows) == len(upstream.calls) >= 2, (rows, told)
    assert all(row[0] == place.provider and row[3] + row[4] > 0 and row[5] > 0 for row in rows), rows
