"""Deployment files are valid for the tools that read them, if those are installed."""

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from support.container import read_stages

ROOT = Path(__file__).resolve().parent.parent.parent
GRACE_S = 60  # SHUTDOWN_GRACE_PERIOD_MS


def test_the_example_keeps_streams_flowing_and_bodies_as_large_as_the_gateways() -> None:
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    assert "proxy_buffering off;" in text
    assert "client_max_body_size 128m;" in text
    assert "max_form_mb = 128 " in (ROOT / "config" / "default.toml").read_text()


def test_the_container_is_slim_without_root_and_shows_its_health() -> None:
    build, final = read_stages()
    assert build.base == final.base and re.fullmatch(r"python:3\.\d+-slim-\w+", final.base)
    assert final.last("USER").split(":")[0].isdigit() and int(final.last("USER").split(":")[0]) > 0
    assert final.command == ["llmgateway-manage", "serve"] and final.environment["GATEWAY_ENV"] == "production"
    assert "/readyz" in final.health_command[-1] and final.last("VOLUME") == final.environment["GATEWAY_DATA_DIR"]
    runs = [rest for word, rest in build.steps if word == "RUN"]
    installs = [one for run in runs for one in run.split("&&") if "pip install" in one]
    assert len(installs) == 3 and all("--require-hashes" in one or "--no-index" in one for one in installs)
    # Every copied file exists, and files that must not be in an image are excluded.
    copied = [name for word, rest in build.steps if word == "COPY" for name in rest.split()[:-1]]
    assert copied and [name for name in copied if not (ROOT / name).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", "data", "gateway.toml"} <= set(ignored) and not set(copied) & set(ignored)


def test_build_requirements_of_the_wheel_are_pinned_with_hashes() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pinned = (ROOT / "requirements-build.txt").read_text()
    for one in wanted:
        assert re.search(rf"^{re.match('[a-z-]+', one)[0]}==", pinned, re.M)
    assert pinned.count("==") * 2 <= pinned.count("--hash=sha256:")


def test_hadolint_finds_nothing_in_the_container_file() -> None:
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("hadolint has no wheel for this platform")
    command = [program, "--failure-threshold", "info", ROOT / "deploy" / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_compose_takes_the_composition(name: str) -> None:
    """Every key is known and has the right type, and every named network and volume exists."""
    compose_spec = pytest.importorskip("compose_spec", reason="it has no wheel for this platform")
    composed = yaml.safe_load((ROOT / "deploy" / name).read_text())  # merges what stands under x-gateway
    compose_spec.PyCompose.from_json(json.dumps(composed)).validate()
    composed["services"][next(iter(composed["services"]))]["restrat"] = "always"
    with pytest.raises(ValueError, match="restrat"):
        compose_spec.PyCompose.from_json(json.dumps(composed))


def test_the_composition_runs_one_service_with_a_read_only_root() -> None:
    composed = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    ((name, service),) = composed["services"].items()
    assert name == "gateway" and service["read_only"] and service["restart"] == "unless-stopped"
    assert (ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert service["cap_drop"] == ["ALL"] and "data:/data" in service["volumes"] and "data" in composed["volumes"]
    assert int(service["stop_grace_period"].rstrip("s")) > GRACE_S


def test_the_unit_restarts_reloads_and_waits_for_streams() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "llmgateway.service")
    service = unit["Service"]
    assert service["Restart"] == "always" and "HUP" in service["ExecReload"]
    assert service["ExecStart"].endswith("llmgateway-manage serve") and service["NoNewPrivileges"] == "yes"
    assert int(service["TimeoutStopSec"]) > GRACE_S and unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "llmgateway.service").read_text()
    unit = tmp_path / "llmgateway.service"
    unit.write_text(text.replace("/opt/llmgateway/bin/llmgateway-manage", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and "llmgateway.service" not in done.stderr, done.stderr
    # Out of 10: without any restriction it is 9.6.
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    exposed = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert exposed.returncode == 0, exposed.stdout[-300:] + exposed.stderr


def test_the_cluster_has_two_nodes_with_folders_of_their_own_behind_nginx() -> None:
    composed = yaml.safe_load((ROOT / "deploy" / "compose.cluster.yaml").read_text())
    services = composed["services"]
    nodes = [services["gateway-1"], services["gateway-2"]]
    assert len({node["volumes"][0] for node in nodes}) == len({node["hostname"] for node in nodes}) == 2
    for node in nodes:
        assert node["read_only"] and "env_file" in node and int(node["stop_grace_period"].rstrip("s")) > GRACE_S
        assert node["environment"]["TRUSTED_PROXIES"] == composed["networks"]["inside"]["ipam"]["config"][0]["subnet"]
    assert {"postgres", "redis", "nginx"} <= set(services)
    assert {volume.split(":")[0] for node in nodes for volume in node["volumes"]} <= set(composed["volumes"])
    # nginx resolves both names in the example.
    program = re.search(r"sed '([^']+)'", services["nginx"]["command"][2])
    assert program is not None
    edited = subprocess.run(["sed", program[1], ROOT / "deploy" / "nginx.conf"], capture_output=True, text=True).stdout
    servers = re.findall(r"server (gateway-\d:4001) max_fails=2 fail_timeout=1s;", edited)
    assert servers == ["gateway-1:4001", "gateway-2:4001"]
    # The certificate is at the path of the example, and both of its ports are published.
    places = {volume.split(":")[1] for volume in services["nginx"]["volumes"]}
    assert {str(Path(path).parent) for path in re.findall(r"ssl_certificate\S* +(\S+);", edited)} <= places
    listened = set(re.findall(r"listen (\d+)", edited))
    assert listened == {port.split(":")[1] for port in services["nginx"]["ports"]} == {"80", "443"}


def test_the_sizing_is_what_was_measured() -> None:
    """Figures of the page are settings, or are in docs/performance.md with the way they were measured."""
    told = (ROOT / "docs" / "deployment.md").read_text()
    measured = (ROOT / "docs" / "performance.md").read_text()
    chosen = tomllib.loads((ROOT / "config" / "default.toml").read_text())
    row = re.search(r"\n\| gateway \| (\d+) \| (\d+) \| (?:[\d.,]+ \| ){4}(\d+) \|", measured)
    busy = re.search(r"up to (\d+) µs a request and (\d+) µs a stream, .* up to (\d+) MB", measured)
    assert row is not None and busy is not None
    assert f"CPU of a plain request | {row[1]} µs on an idle machine, up to {busy[1]} on a busy one" in told
    assert f"CPU of a stream of 50 events | {row[2]} µs on an idle machine, up to {busy[2]} on a busy one" in told
    assert f"{row[3]} MB with its master under load, {busy[3]} at most | workers × ({busy[3]} MB" in told
    for pattern in (r"(\d+) MB resident when idle", r"(\d+ to \d+) MB after a thousand"):
        figure = re.search(pattern, told)
        assert figure is not None and re.search(rf"\b{figure[1]}\b", measured), pattern
    for name in ("server.bodies_mb", "server.uploads_mb", "database.pool_size", "metering.usage_days"):
        section, key = name.split(".")
        assert re.search(rf"`({section}\.)?{key}` \({chosen[section][key]:,}\)", told), name
