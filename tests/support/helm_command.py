"""Replaces the command `helm` in code blocks of the documents. Helm's engine renders the chart without installing
it."""

import sys

import helm_python


def main(arguments: list[str]) -> None:
    if arguments[0] not in ("install", "upgrade"):
        return
    name, place = arguments[1:3]
    chosen = [arguments[at + 1] for at, argument in enumerate(arguments) if argument == "--set"]
    helm_python.validate_release_name(name)
    with helm_python.Chart.load(place) as chart:
        manifests = chart.render(helm_python.parse_set_string(",".join(chosen)), name=name, namespace="default")
    assert any("kind: StatefulSet" in text for text in manifests.values())


main(sys.argv[1:])
