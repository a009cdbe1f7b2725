"""The Helm chart, rendered by Helm's engine, is checked against the schemas of Kubernetes and against the product."""

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import warm

helm = pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this platform")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "llmgateway"
# The oldest version that Chart.yaml accepts, and the newest with available schemas.
KUBERNETES = ("1.27", "1.34", "1.37")
OF_PROMETHEUS = "monitoring.coreos.com/"
NAMES = ["DATABASE_URL", "REDIS_URL", "GATEWAY_API_KEY_HASH_SECRET", "GATEWAY_ENCRYPTION_KEY"]
IMAGE = {"repository": "registry.example.com/team/llmgateway"}
PLAIN: dict[str, Any] = {"image": IMAGE, "secrets": {"existingSecret": "mine"}}
WHOLE: dict[str, Any] = {
    "secrets": {"existingSecret": "mine", "names": [*NAMES, "GATEWAY_METRICS_TOKEN", "LLM_OPENAI_API_KEY"]},
    "autoscaling": {"enabled": True},
    "config": "[server]\nmax_body_mb = 16\n",
    "trustedProxies": ["10.0.0.0/8"],
    "clientIpHeader": "x-forwarded-for",
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "rules": {"enabled": True}},
    "networkPolicy": {"enabled": True, "from": [{"podSelector": {"matchLabels": {"app": "ingress"}}}]},
    "ingress": {"enabled": True, "host": "llm.example.com", "tlsSecret": "tls"},
    "serviceAccount": {"name": "theirs"},
    "image": {**IMAGE, "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "persistence": {"storageClass": "fast"},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "platform"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
    "extraVolumes": [{"name": "catalogue", "configMap": {"name": "catalogue"}}],
    "extraVolumeMounts": [{"name": "catalogue", "mountPath": "/catalogue"}],
}
TRIAL: dict[str, Any] = {
    "image": IMAGE,
    "replicas": 1,
    "secrets": {"values": {"LLM_OPENAI_API_KEY": "sk-one"}},
    "persistence": {"enabled": False},
    "metrics": {"port": 0},
}
Manifests = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def chart() -> Iterator[Any]:
    with helm.Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def render(chart: Any) -> Callable[..., Manifests]:
    """Return the objects of an installation by kind (a second one of a kind as "Kind name")."""

    def make(values: dict[str, Any]) -> Manifests:
        found: Manifests = {}
        for path, text in chart.render(values, name="gw", namespace="prod").items():
            for document in yaml.safe_load_all(text) if path.endswith(".yaml") else ():
                if document:
                    kind = document["kind"]
                    found[f"{kind} {document['metadata']['name']}" if kind in found else kind] = document
        return found

    return make


@pytest.mark.parametrize("values", [PLAIN, WHOLE, TRIAL], ids=["plain", "whole", "trial"])
def test_helm_takes_the_chart(values: dict[str, Any]) -> None:
    told = helm.lint(CHART, values, strict=True)
    assert told["total_charts_linted"] == 1 and told["errors"] == []
    assert [message for message in told["messages"] if message["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [PLAIN, WHOLE, TRIAL], ids=["plain", "whole", "trial"])
def test_kubernetes_accepts_its_output(render: Callable[..., Manifests], values: dict[str, Any], version: str) -> None:
    manifests = render(values)
    assert len(manifests) >= 5
    for one in manifests.values():
        if not one["apiVersion"].startswith(OF_PROMETHEUS):
            kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("port", [9464, 0])
def test_the_operator_of_prometheus_accepts_its_resources(render: Callable[..., Manifests], port: int) -> None:
    """Every field has the right type, and there is no unknown field, which would be dropped."""
    models = pytest.importorskip("cloudcoil.models.prometheus_operator.v1")
    manifests = render({**WHOLE, "metrics": {**WHOLE["metrics"], "port": port}})
    found = [one for one in manifests.values() if one["apiVersion"].startswith(OF_PROMETHEUS)]
    assert {one["kind"] for one in found} == {"ServiceMonitor", "PrometheusRule"}
    for one in found:
        read = getattr(models, one["kind"]).model_validate(one)
        assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == one


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"secrets": {"existingSecret": "mine"}}, "--set image.repository="),
        ({"image": IMAGE}, "DATABASE_URL"),
        ({"image": IMAGE, "secrets": {"values": {"DATABASE_URL": "postgresql://x/y"}}}, "GATEWAY_API_KEY_HASH_SECRET"),
        ({**TRIAL, "autoscaling": {"enabled": True}}, "DATABASE_URL"),
        ({**TRIAL, "metrics": {"port": 0, "serviceMonitor": {"enabled": True}}}, "GATEWAY_METRICS_TOKEN"),
        ({**PLAIN, "ingress": {"enabled": True}}, "ingress.host"),
        ({**PLAIN, "replica": 3}, "replica"),
        ({**PLAIN, "settings": {"log-level": "info"}}, "log-level"),
        ({**PLAIN, "image": {**IMAGE, "digest": "latest"}}, "digest"),
    ],
)
def test_invalid_values_are_refused_before_anything_is_installed(chart: Any, values: dict[str, Any], word: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(word)):
        chart.render(values, name="gw", namespace="prod")


def pod(manifests: Manifests) -> dict[str, Any]:
    return manifests["StatefulSet"]["spec"]["template"]["spec"]


def container(manifests: Manifests) -> dict[str, Any]:
    return pod(manifests)["containers"][0]


def environment(manifests: Manifests) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container(manifests)["env"]}


def test_openshift_chooses_the_ids_of_pods(render: Callable[..., Manifests]) -> None:
    """Its default constraints refuse pods that choose user, group or group of files."""
    ids = ("runAsUser", "runAsGroup", "fsGroup")
    manifests = render({**PLAIN, "podSecurityContext": dict.fromkeys(ids)})
    for kind in ("StatefulSet", "Job"):
        security = manifests[kind]["spec"]["template"]["spec"]["securityContext"]
        assert security["runAsNonRoot"] and not {name for name in ids if security.get(name) is not None}
    # Its ids belong to the group 0.
    assert "install -d -o gateway -g 0 -m 0770 /data" in (ROOT / "deploy" / "Dockerfile").read_text()


def test_no_pod_has_root_or_writes_outside_of_its_volumes(render: Callable[..., Manifests]) -> None:
    manifests = render(PLAIN)
    specs = [manifests[kind]["spec"]["template"]["spec"] for kind in ("StatefulSet", "Job")] + [
        manifests["Pod"]["spec"]
    ]
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "its names begin as settings do"
        for one in spec["containers"]:
            security = one["securityContext"]
            assert security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}
            assert security["allowPrivilegeEscalation"] is False and "memory" in one["resources"]["limits"]
    # The user of the image.
    assert "USER 10001:10001" in (ROOT / "deploy" / "Dockerfile").read_text()
    assert {one["mountPath"] for one in container(manifests)["volumeMounts"]} == {
        "/data",
        "/tmp",
        "/run/secrets/llmgateway",
    }


def test_secrets_are_files_and_never_in_the_environment(render: Callable[..., Manifests]) -> None:
    told = environment(render(WHOLE))
    for name in WHOLE["secrets"]["names"]:
        assert name not in told and told[f"{name}_FILE"] == f"/run/secrets/llmgateway/{name}"
    manifests = render(TRIAL)
    assert manifests["Secret"]["stringData"] == {"LLM_OPENAI_API_KEY": "sk-one"}
    assert "sk-one" not in json.dumps({kind: one for kind, one in manifests.items() if kind != "Secret"})
    assert "Secret" not in render(PLAIN)


def test_the_gateway_takes_the_settings_that_a_pod_gives_it(render: Callable[..., Manifests], tmp_path: Path) -> None:
    """Run `config check` with the environment of the pod and other folders; an unknown setting is an error."""
    manifests = render(WHOLE)
    places = {"/data": tmp_path / "data", "/run/secrets/llmgateway": tmp_path / "secrets", "/etc/llmgateway": tmp_path}
    (tmp_path / "secrets").mkdir()
    for name in WHOLE["secrets"]["names"]:
        value = {"DATABASE_URL": "postgresql://a@b/c", "REDIS_URL": "redis://r:6379/0"}.get(name, "k" * 44)
        (tmp_path / "secrets" / name).write_text(value)
    (tmp_path / "gateway.toml").write_text(manifests["ConfigMap"]["data"]["gateway.toml"])
    given = {}
    for name, value in environment(manifests).items():
        place = next((place for place in places if value.startswith(place)), None)
        given[name] = value.replace(place, str(places[place])) if place else value
    command = ["gateway.operator.command", "config", "check"]
    done = warm.run(command, given)
    assert done.returncode == 0, done.stdout + done.stderr
    # An unknown name is reported.
    assert warm.run(command, {**given, "GATEWAY_SERVER_BODIES": "1"}).returncode == 1


def test_probes_send_the_right_requests(render: Callable[..., Manifests]) -> None:
    one = container(render(PLAIN))
    paths = {name: one[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    first = one["startupProbe"]
    assert first["periodSeconds"] * first["failureThreshold"] >= 600, "a first start may migrate a large database"


def test_a_pod_ends_without_a_request_lost(render: Callable[..., Manifests]) -> None:
    manifests = render({**PLAIN, "shutdown": {"preStopSeconds": 7, "graceSeconds": 90}})
    assert container(manifests)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    assert environment(manifests)["SHUTDOWN_GRACE_PERIOD_MS"] == "90000"
    assert pod(manifests)["terminationGracePeriodSeconds"] > 7 + 90
    budget = manifests["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == manifests["StatefulSet"]["spec"]["selector"]
    assert "PodDisruptionBudget" not in render(TRIAL), "it would keep a node from ever being drained"


def test_autoscaling_leaves_the_number_of_nodes_alone_and_takes_them_away_slowly(
    render: Callable[..., Manifests],
) -> None:
    manifests = render(WHOLE)
    scaler = manifests["HorizontalPodAutoscaler"]["spec"]
    assert "replicas" not in manifests["StatefulSet"]["spec"] and scaler["minReplicas"] >= 2
    assert scaler["scaleTargetRef"]["name"] == manifests["StatefulSet"]["metadata"]["name"]
    assert "cpu" in container(manifests)["resources"]["requests"], "utilization is of what was requested"
    assert scaler["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 300


def test_a_migration_comes_before_an_upgrade_with_the_new_image(render: Callable[..., Manifests]) -> None:
    manifests = render(WHOLE)
    job = manifests["Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    (one,) = job["spec"]["template"]["spec"]["containers"]
    assert one["args"] == ["migrate"] and one["image"] == container(manifests)["image"]
    # The job has only objects that the previous release certainly has.
    volumes = job["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes if "configMap" in volume] == []
    assert {volume["name"] for volume in volumes} == {mount["name"] for mount in one["volumeMounts"]}
    # Its pods do not receive requests.
    selector = manifests["Service"]["spec"]["selector"]
    assert not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert "Job" not in render(TRIAL), "the database of one node on SQLite is in its volume"


def test_the_job_brings_a_database_to_the_version_with_nothing_but_what_it_is_given(
    render: Callable[..., Manifests], postgresql_url: str, tmp_path: Path
) -> None:
    (one,) = render(PLAIN)["Job"]["spec"]["template"]["spec"]["containers"]
    values = {"DATABASE_URL": postgresql_url, "GATEWAY_DATA_DIR": str(tmp_path / "data")}
    given = {}
    for setting in one["env"]:
        name = setting["name"].removesuffix("_FILE")
        if name != setting["name"]:
            (tmp_path / name).write_text(values.get(name, "k" * 44))
        given[setting["name"]] = str(tmp_path / name) if name != setting["name"] else values.get(name, setting["value"])
    done = warm.run(["gateway.operator.command", *one["args"], "--json"], given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "applied" in json.loads(done.stdout)


def test_metrics_are_scraped_from_each_node_and_kept_from_callers(render: Callable[..., Manifests]) -> None:
    manifests = render(WHOLE)
    callers, nodes = manifests["Service"], manifests["Service gw-llmgateway-nodes"]
    assert [port["name"] for port in callers["spec"]["ports"]] == ["http"]
    monitor = manifests["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= nodes["metadata"]["labels"].items()
    assert not monitor["selector"]["matchLabels"].items() <= callers["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in nodes["spec"]["ports"]}
    assert environment(manifests)["GATEWAY_METRICS_PORT"] == "9464"
    to_callers, to_metrics = manifests["NetworkPolicy"]["spec"]["ingress"]
    assert [port["port"] for port in to_callers["ports"]] == ["http"] and to_metrics["from"]
    # Without a separate port, metrics need the token.
    token = {**WHOLE, "metrics": {"port": 0, "serviceMonitor": {"enabled": True}}}
    manifests = render(token)
    (endpoint,) = manifests["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["port"] == "http" and endpoint["authorization"]["credentials"]["key"] == "GATEWAY_METRICS_TOKEN"
    assert "GATEWAY_METRICS_PORT" not in environment(manifests)


def test_the_alert_rules_are_those_of_the_repository(render: Callable[..., Manifests]) -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "llmgateway.rules.yml").read_text())
    assert render(WHOLE)["PrometheusRule"]["spec"] == rules


def test_a_node_gets_its_own_volume_again_and_fits_into_it(render: Callable[..., Manifests]) -> None:
    manifests = render(PLAIN)
    (claim,) = manifests["StatefulSet"]["spec"]["volumeClaimTemplates"]
    told = environment(manifests)
    size_mb = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) << 10
    uploads_mb = int(told["WEB_CONCURRENCY"]) * int(told["GATEWAY_SERVER_UPLOADS_MB"])
    assert size_mb >= 2 * uploads_mb
    assert told["GATEWAY_DATA_DIR"] == "/data"


def test_memory_is_what_was_measured_and_what_workers_may_hold(render: Callable[..., Manifests]) -> None:
    manifests = render(PLAIN)
    measured = re.search(
        r"with Flask and all surfaces loaded up to (\d+) MB", (ROOT / "docs" / "performance.md").read_text()
    )
    assert measured is not None
    told, resources = environment(manifests), container(manifests)["resources"]
    workers = int(told["WEB_CONCURRENCY"])
    bodies = int(told["GATEWAY_SERVER_BODIES_MB"])
    megabytes = {where: int(resources[where]["memory"].removesuffix("Mi")) * 1.048576 for where in resources}
    assert megabytes["limits"] >= math.ceil(workers * (int(measured[1]) + bodies) + 64)
    assert megabytes["requests"] >= workers * int(measured[1])
    assert "cpu" not in resources["limits"]


def test_the_ingress_lets_streams_and_large_bodies_through(render: Callable[..., Manifests]) -> None:
    ingress = render(WHOLE)["Ingress"]
    told = {key.rpartition("/")[2]: value for key, value in ingress["metadata"]["annotations"].items()}
    nginx = (ROOT / "deploy" / "nginx.conf").read_text()
    assert told["proxy-buffering"] == told["proxy-request-buffering"] == "off"
    assert f"client_max_body_size {told['proxy-body-size']};" in nginx
    assert f"proxy_read_timeout {told['proxy-read-timeout']}s;" in nginx
    public = "GATEWAY_SERVER_PUBLIC_URL"
    assert environment(render(WHOLE))[public] == "https://llm.example.com" and public not in environment(render(PLAIN))
    told_otherwise = {**WHOLE, "settings": {public: "https://example.com/llm"}}
    assert environment(render(told_otherwise))[public] == "https://example.com/llm"
    assert ingress["spec"]["tls"] == [{"hosts": ["llm.example.com"], "secretName": "tls"}]


def test_every_value_is_described_by_the_schema_and_the_version_is_the_products() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) | {"global"} == set(schema["properties"])
    told = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{told["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()
