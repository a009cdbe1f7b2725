"""A case played: what the caller sees of each turn of its conversation."""

from typing import Any

from contract import views
from contract.cases import GO_ON, Case, Json
from contract.contract_gateway import ContractGateway


def play(stage: ContractGateway, surface: str, vendor: str, case: Case, streamed: bool = False) -> list[Json]:
    """Run the case and return the caller's view of each turn."""
    stage.script(vendor, *case.says)
    body: Any = case.body | {"model": f"fake-{vendor}/{vendor}-able"} | ({"stream": True} if streamed else {})
    turns = []
    for _ in [1] if case.says[0].broken else case.says:
        status, raw = stage.send(surface, body)
        reply = views.fold(surface, raw)
        turns.append(views.view(surface, status, reply))
        if reply.get("error"):
            break
        body = GO_ON[surface](body, reply, case.result)
    return turns
