"""The artefacts of `make release`: complete, for the publisher's registry, and the same in each run."""

import hashlib
import json
import re
import tarfile
from pathlib import Path

import pytest
from support.wheels import build_wheel

from deploy import release
from gateway import __version__

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "registry.example.com/team/gateway"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("release")
    release.release(made, "registry.example.com/team/", "gateway")
    return made


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_every_artefact_has_a_checksum(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    server = ("-py3-none-any.whl", ".tar.gz", ".cdx.json", "-container.tar.gz", ".tgz")
    client = ("-py3-none-any.whl", ".tar.gz")
    assert names == {f"llmgateway-{__version__}{end}" for end in server} | {
        f"llmgateway_cli-{__version__}{end}" for end in client
    }
    sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def test_a_second_run_makes_the_same_files(folder: Path, tmp_path: Path) -> None:
    release.release(tmp_path, "registry.example.com/team", "gateway")
    assert (tmp_path / "SHA256SUMS").read_text() == (folder / "SHA256SUMS").read_text()


def test_the_components_are_the_packages_of_the_image_with_their_hashes(folder: Path) -> None:
    body = json.loads((folder / f"llmgateway-{__version__}.cdx.json").read_text())
    text = (ROOT / "requirements-otel.txt").read_text()
    assert "requirements-otel.txt" in (ROOT / "deploy" / "Dockerfile").read_text()
    listed = {f"{component['name']}=={component['version']}" for component in body["components"]}
    pinned = {line.split()[0] for line in text.splitlines() if "==" in line and not line.startswith(" ")}
    assert listed == {re.sub(r"\[.*\]", "", requirement) for requirement in pinned}
    hashes = [one["content"] for item in body["components"] for one in item["externalReferences"][0]["hashes"]]
    assert sorted(hashes) == sorted(re.findall("sha256:([0-9a-f]+)", text))
    markers = {
        component["name"]: component["properties"][0]["value"]
        for component in body["components"]
        if "properties" in component
    }
    assert markers["tzdata"] == "sys_platform == 'win32'"
    references = {component["bom-ref"] for component in body["components"]}
    assert len(references) == len(listed) and references == set(body["dependencies"][0]["dependsOn"])
    assert body["metadata"]["component"]["purl"] == f"pkg:pypi/llmgateway@{__version__}"


def test_the_context_of_the_container_makes_the_released_wheel(folder: Path, tmp_path: Path) -> None:
    context = unpack(folder / f"llmgateway-{__version__}-container.tar.gz", tmp_path / "context")
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", (context / "deploy" / "Dockerfile").read_text(), re.M):
        assert all((context / name).exists() for name in line.split())
    (tmp_path / "built").mkdir()
    built = build_wheel(tmp_path / "built", context)
    assert built.read_bytes() == (folder / built.name).read_bytes()


def test_the_packed_chart_installs_the_publishers_image(folder: Path) -> None:
    helm = pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this platform")
    with helm.Chart.load(folder / f"llmgateway-{__version__}.tgz") as chart:
        manifests = chart.render({"secrets": {"existingSecret": "mine"}}, name="gw", namespace="prod")
    assert any(f"{REPOSITORY}:{__version__}" in text for text in manifests.values())
