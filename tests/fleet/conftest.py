# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server for the tests of a file. Without PostgreSQL the tests skip."""
import pytest

import server as servers


def pytest_sessionfinish(session, exitstatus):
    if servers.missing():
        session.exitstatus = 77


@pytest.fixture(scope="module")
def server():
    if servers.missing():
        pytest.skip(servers.missing())
    made = servers.Server()
    yield made
    made.close()


@pytest.fixture
def host(server):
    """host(NAME): a played host, ended with the test."""
    import hosts
    made = []

    def make(name, **how):
        made.append(hosts.PlayedHost(name, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()
