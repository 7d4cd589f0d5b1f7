"""What the offline agent's rules read in a query."""

import pytest

from pwagents.persona2web.world.domains import domains
from pwagents.persona2web.world.queries import query, read_task
from pwagents.persona2web.world.types import Goal

GOALS = [
    Goal(
        domain=name,
        host=domain.hosts[1],
        operation=operation,
        stated={domain.facets[0].name: domain.facets[0].values[0]},
        masked={facet.name: facet.values[-1] for facet in domain.facets[1:3]},
    )
    for name, domain in domains().items()
    for operation in domain.operations
]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.domain}-{goal.operation}")
def test_queries_are_read_as_they_were_meant_and_no_further(goal):
    full, short = read_task(query(goal, 0)), read_task(query(goal, 2))
    for asked in (full, short):
        assert (asked.domain.name, asked.operation) == (goal.domain, goal.operation)
    assert (full.host, full.stated, full.left_out) == (goal.host, goal.stated | goal.masked, ())
    assert (short.host, short.stated, set(short.left_out)) == ("", goal.stated, set(goal.masked))


def test_any_text_is_read_somehow():
    asked = read_task("Hello?")
    assert asked.operation in asked.domain.operations and not asked.stated and not asked.left_out
