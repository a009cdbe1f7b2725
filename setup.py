"""What a wheel holds: every package, and inside of `gateway` what lies beside it in a checkout.

That is settings with the catalogue, migrations, and the two files that gunicorn starts from; `gateway.settings.ROOT`
finds them at either place.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

MOVED = {"gateway.config": "config", "gateway.migrations": "migrations", "gateway.launch": "."}


class BuildPy(build_py):
    """Leaves this file out, which lies beside those of `gateway.launch`."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [found for found in super().find_package_modules(package, package_dir) if found[1] != "setup"]


setup(
    packages=[*find_packages(include=["gateway", "gateway.*"]), *MOVED],
    package_dir=MOVED,
    package_data={
        "gateway.surfaces.console": ["templates/*.html"],
        "gateway.config": ["*.toml", "catalogue/*.toml", "catalogue/*.gz", "catalogue/*/*.toml"],
    },
    include_package_data=False,
    cmdclass={"build_py": BuildPy},
)
