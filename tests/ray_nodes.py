"""A Ray cluster for tests."""

from collections.abc import Iterator

import pytest

from benchmarks import ray_nodes
from benchmarks.ray_nodes import Nodes


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with ray_nodes.nodes() as cluster:
        yield cluster
