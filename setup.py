"""What a wheel holds beside pyproject.toml: every package, and settings, catalogue and migrations inside of `gateway`.

In a checkout these three are folders of their own; `gateway.settings.ROOT` finds them at either place.
"""

from setuptools import find_packages, setup

DATA = {"gateway.config": "config", "gateway.migrations": "migrations"}

setup(
    packages=[*find_packages(include=["gateway", "gateway.*"]), *DATA],
    package_dir=DATA,
    package_data={
        "gateway.console": ["templates/*.html"],
        "gateway.config": ["*.toml", "catalogue/*.toml", "catalogue/*.gz", "catalogue/*/*.toml"],
    },
    include_package_data=False,
)
