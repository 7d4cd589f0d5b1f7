"""A web of three pages, for tests of agents: a portal, a site with one filter, its results."""

from pwagents.persona2web.world.types import BrowsingEvent

RECORDS = tuple(
    BrowsingEvent(
        event_id=f"e{i}", timestamp=1_700_000_000_000 + i, type="booking", object=what, website=host
    )
    for i, (what, host) in enumerate(
        [("flight, seat 14A", "skylark.test"), ("flight, seat 20F", "skylark.test"), ("socks", "fern.test")]
    )
)
PAGES = {
    "portal": "[1] link 'Skylark'\n[2] link 'Wayfarely'",
    "skylark": "[3] combobox 'Seat'\n[4] option 'window'\n[5] option 'aisle'",
    "window": "[6] button 'Book the 9:00, window'",
    "booked": "Your draft: 9:00, window",
}
LINKS = {("portal", "1"): "skylark", ("skylark", "4"): "window", ("window", "6"): "booked"}


class SmallWeb:
    """A driver of it. ``done`` holds what was done there."""

    def __init__(self):
        self.page, self.done = "portal", []

    def observe(self):
        return PAGES[self.page]

    def act(self, action):
        self.done.append(action)
        number = action.removeprefix("click [").removesuffix("]")
        if (self.page, number) not in LINKS:
            return f"nothing to do with {action[:40]!r} here"
        self.page = LINKS[self.page, number]
        return ""


def recall(query):
    """Every record that has a word of the query."""
    return [r for r in RECORDS if set(query.lower().split()) & set(r.object.replace(",", "").split())]
