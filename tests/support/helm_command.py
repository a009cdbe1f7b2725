"""Replaces the command `helm` in code blocks of the documents. Helm's engine renders the chart without installing
it."""

import sys

import helm_python


def main(words: list[str]) -> None:
    if words[0] not in ("install", "upgrade"):
        return
    name, place = words[1:3]
    chosen = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    helm_python.validate_release_name(name)
    with helm_python.Chart.load(place) as chart:
        made = chart.render(helm_python.parse_set_string(",".join(chosen)), name=name, namespace="default")
    assert any("kind: StatefulSet" in text for text in made.values())


main(sys.argv[1:])
