"""A change made at one node is in force on every worker of every node within a second."""

import json
import time
from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from openai import OpenAI
from support import postgres
from support.fleet import open_nodes
from support.gateways import GatewayProcess
from support.old_mcp import OldStream
from support.signed_in_owner import PASSWORD, SignedInOwner
from support.worker_connections import Line, open_lines

NODES = WORKERS = 2
PROMISE_S, MARGIN_S = 1.0, 1.0
OPEN = ["200"] * NODES * WORKERS
BODY = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}


class Cluster:
    """Two nodes of two workers, a signed-in owner at the first, and a connection to each worker."""

    def __init__(self, nodes: list[GatewayProcess]) -> None:
        self.nodes = nodes
        self.desk = SignedInOwner(nodes[0].address)
        self.organization = self.desk("GET", "/orgs")["organizations"][0]["id"]
        self.lines: list[Line] = [line for node in nodes for line in open_lines(node)]

    def make_key(self) -> dict[str, Any]:
        """Create a key in a separate project."""
        project = {"organizationId": self.organization, "name": "Changing"}
        project_id = self.desk("POST", "/projects", project)["project"]["id"]
        return self.desk("POST", "/keys/api", {"description": "changing", "projectId": project_id})["apiKey"]

    def answers_of_workers(self, token: str) -> list[str]:
        """Return the answer of each worker: "200", or status and code."""
        responses = [line.post("/v1/chat/completions", BODY, token) for line in self.lines]
        return ["200" if status == 200 else f"{status} {body['error']['code']}" for status, body in responses]

    def settles(self, token: str, expected: str) -> None:
        """Every worker gives the wanted answer in the promised time, counted from now on."""
        until = time.monotonic() + PROMISE_S + MARGIN_S
        answers = self.answers_of_workers(token)
        while set(answers) != {expected} and time.monotonic() < until:
            answers = self.answers_of_workers(token)
        assert answers == [expected] * NODES * WORKERS


@pytest.fixture(scope="module")
def cluster(postgres_databases: postgres.Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    folder = tmp_path_factory.mktemp("nodes")
    with open_nodes(postgres_databases, folder, NODES, WORKERS, **environment) as nodes:
        yield Cluster(nodes)


def test_status_distinguishes_the_nodes_of_one_host(cluster: Cluster) -> None:
    names = json.loads(cluster.nodes[0].manage("status", "--json"))["nodes"]
    assert list(names.values()) == [WORKERS] * NODES
    for node in cluster.nodes:
        assert len([name for name in names if f":{node.port} (process " in name]) == 1


def test_a_deactivated_key_is_refused_and_an_activated_one_accepted(cluster: Cluster) -> None:
    key = cluster.make_key()
    assert cluster.answers_of_workers(key["token"]) == OPEN
    cluster.desk("PATCH", f"/keys/api/{key['id']}", {"status": "inactive"})
    cluster.settles(key["token"], "401 invalid_api_key")
    cluster.desk("PATCH", f"/keys/api/{key['id']}", {"status": "active"})
    cluster.settles(key["token"], "200")


def test_a_rolled_key_changes_its_token(cluster: Cluster) -> None:
    key = cluster.make_key()
    assert cluster.answers_of_workers(key["token"]) == OPEN
    fresh = cluster.desk("POST", f"/keys/api/{key['id']}/roll")["apiKey"]["token"]
    cluster.settles(key["token"], "401 invalid_api_key")
    cluster.settles(fresh, "200")


def test_a_members_limit_holds(cluster: Cluster) -> None:
    key = cluster.make_key()
    assert cluster.answers_of_workers(key["token"]) == OPEN
    member = cluster.desk("GET", f"/orgs/{cluster.organization}/members")["members"][0]["id"]
    path = f"/orgs/{cluster.organization}/members/{member}/limit"
    cluster.desk("PATCH", path, {"usageLimit": "0"})
    cluster.settles(key["token"], "402 member_limit_reached")
    cluster.desk("PATCH", path, {"usageLimit": None})
    cluster.settles(key["token"], "200")


def test_a_teams_limit_holds_for_who_joins_and_ends_for_who_leaves(cluster: Cluster) -> None:
    key = cluster.make_key()
    assert cluster.answers_of_workers(key["token"]) == OPEN
    member = cluster.desk("GET", f"/orgs/{cluster.organization}/members")["members"][0]["id"]
    team = cluster.desk("POST", f"/orgs/{cluster.organization}/teams", {"name": "Changing"})["team"]["id"]
    path = f"/orgs/{cluster.organization}/teams/{team}"
    cluster.desk("PATCH", f"{path}/limit", {"usageLimit": "0"})
    cluster.desk("PUT", f"{path}/members/{member}")
    cluster.settles(key["token"], "402 team_limit_reached")
    cluster.desk("DELETE", f"{path}/members/{member}")
    cluster.settles(key["token"], "200")


def test_an_access_rule_holds(cluster: Cluster) -> None:
    key = cluster.make_key()
    assert cluster.answers_of_workers(key["token"]) == OPEN
    path = f"/keys/api/{key['id']}/iam"
    rule = {"ruleType": "deny_providers", "ruleValue": {"providers": ["sandbox"]}}
    rule_id = cluster.desk("POST", path, rule)["rule"]["id"]
    cluster.settles(key["token"], "403 model_not_allowed")
    cluster.desk("DELETE", f"{path}/{rule_id}")
    cluster.settles(key["token"], "200")


def test_an_archived_project_is_gone(cluster: Cluster) -> None:
    key = cluster.make_key()
    assert cluster.answers_of_workers(key["token"]) == OPEN
    cluster.desk("DELETE", f"/projects/{key['projectId']}")
    cluster.settles(key["token"], "410 project_archived")


def test_a_rate_limit_holds(cluster: Cluster) -> None:
    key = cluster.make_key()
    assert cluster.answers_of_workers(key["token"]) == OPEN
    cluster.nodes[1].manage("rates", "set", "key", key["id"], "requests", "0")
    cluster.settles(key["token"], "429 rate_limit_exceeded")
    cluster.nodes[1].manage("rates", "clear", "key", key["id"])
    cluster.settles(key["token"], "200")


VERSIONS = 8
SERVED = ("sandbox-echo", "sandbox-template")  # by an odd and an even version


def test_a_published_route_acts_everywhere_and_no_answer_has_parts_of_two_versions(cluster: Cluster) -> None:
    key = cluster.make_key()["token"]
    place = f"/orgs/{cluster.organization}/routes/house"
    body = {**BODY, "model": "dynamic/house"}

    def versions() -> set[int]:
        """Return the version of each worker, whose answer has its rule and its model."""
        found = set()
        for line in cluster.lines:
            status, answer = line.post("/v1/chat/completions", body, key)
            assert status == 200, answer
            told = answer["metadata"]["route"]
            assert told["rule"] == f"rule of {told['version']}"
            assert answer["metadata"]["used_model"] == SERVED[told["version"] % 2]
            found.add(told["version"])
        return found

    took_s = []
    for version in range(1, VERSIONS + 1):
        model = f"sandbox/{SERVED[version % 2]}"
        rules = [{"name": f"rule of {version}", "use": [model, "sandbox/sandbox-json"]}]
        cluster.desk("PUT", place, {"document": {"rules": rules, "otherwise": model}})
        began = time.monotonic()
        publishing = gevent.spawn(cluster.desk, "POST", f"{place}/publish", {})  # while requests go on
        while version > 1 and (found := versions()) != {version}:
            assert found <= {version - 1, version}
            assert time.monotonic() - began < PROMISE_S + MARGIN_S
        took_s.append(time.monotonic() - began)
        publishing.get()
        assert versions() == {version}
    print(f"a published version answered on every worker after {max(took_s):.2f} s at most")


def test_the_stream_of_an_old_mcp_client_is_reached_from_every_worker_of_every_node(cluster: Cluster) -> None:
    stream = OldStream(cluster.nodes[0].address, cluster.nodes[0].key)
    for number, line in enumerate(cluster.lines):
        message = {"jsonrpc": "2.0", "id": number, "method": "ping"}
        assert line.post(stream.path, message, cluster.nodes[0].key) == (202, None)
        assert stream.message() == {"jsonrpc": "2.0", "id": number, "result": {}}
    stream.close()


def test_a_background_response_is_streamed_to_its_end_by_both_nodes_in_turn(cluster: Cluster) -> None:
    key = cluster.make_key()["token"]
    clients = [OpenAI(base_url=f"{node.address}/v1", api_key=key, max_retries=0) for node in cluster.nodes]
    words = " ".join(f"word{number}" for number in range(40))
    begun = clients[0].responses.create(model="sandbox-echo", input=f"[[sandbox: pace=40]] {words}", background=True)
    seen: list[Any] = []
    for opening in range(1, 11):
        after = {"starting_after": seen[-1].sequence_number} if seen else {}
        with clients[opening % NODES].responses.retrieve(begun.id, stream=True, **after) as events:
            seen += [next(events), next(events)]
    seen += clients[1].responses.retrieve(begun.id, stream=True, starting_after=seen[-1].sequence_number)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[-1].type == "response.completed" and seen[-1].response.output_text == words
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == words
    for client in clients:
        again = client.responses.retrieve(begun.id, stream=True)
        assert [event.to_dict() for event in again] == [event.to_dict() for event in seen]


def test_a_background_response_is_cancelled_at_another_node_than_its_reader(cluster: Cluster) -> None:
    key = cluster.make_key()["token"]
    reader, other = (OpenAI(base_url=f"{node.address}/v1", api_key=key, max_retries=0) for node in cluster.nodes)
    begun = reader.responses.create(model="sandbox-echo", input="[[sandbox: pace=1000 tokens=300]]", background=True)
    with reader.responses.retrieve(begun.id, stream=True) as events:
        seen = [next(events)]
        while seen[-1].type != "response.output_text.delta":
            seen.append(next(events))
        assert other.responses.cancel(begun.id).status == "cancelled"
        seen += events  # it ends, long before the answer would
    assert {client.responses.retrieve(begun.id).status for client in (reader, other)} == {"cancelled"}
    again = list(other.responses.retrieve(begun.id, stream=True))
    assert [event.sequence_number for event in again] == list(range(len(again))) and len(again) >= len(seen)
    assert "response.completed" not in {event.type for event in again}
