"""Put ``params/``, which lies beside the library, into the package in a wheel."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages("lib"), "pwagents.params"],
    package_dir={"": "lib", "pwagents.params": "params"},
)
