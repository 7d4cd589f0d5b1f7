"""A visitor who knows the goal and how each site works: the best that can be reached; a check on sites.

It acts through a driver as agents do, one action a step, but reads the page's tree and the truth.
"""

from pwagents.persona2web.domains import facet_of
from pwagents.persona2web.driver import Driver
from pwagents.persona2web.facet_text import wish_text
from pwagents.persona2web.filters import Query, find
from pwagents.persona2web.page import Node
from pwagents.persona2web.pages import looks
from pwagents.persona2web.session import COMPARED
from pwagents.persona2web.types import Domain, Goal, Item, Site


def solve(driver: Driver, goal: Goal, site: Site, domain: Domain) -> str:
    """Reach the goal from the open page, which is the portal's.

    Returns:
        The answer, for a look-up; else an empty text.

    Raises:
        LookupError: a page does not hold what should be there.
    """
    visitor = _Visitor(driver, goal, site, domain)
    visitor.click("link", site.name)
    visitor.click("link", domain.name.capitalize())
    visitor.filter()
    found = find(Query(domain, applied=goal.stated | goal.masked), site)
    return visitor.finish(found)


class _Visitor:
    def __init__(self, driver: Driver, goal: Goal, site: Site, domain: Domain):
        self.driver, self.goal, self.site, self.domain = driver, goal, site, domain
        self.words = looks()["skins"][site.skin]
        self.wishes = {
            site.labels[name]: wish_text(facet_of(domain.name, name), value)
            for name, value in (goal.stated | goal.masked).items()
        }

    def element(self, role: str, name: str, within: str = "") -> Node:
        """The first element of a role and a name, inside a group where one is named."""
        groups = [node for node in _walk(self.driver.page.root) if not within or node.name == within]
        for group in groups:
            for node in _walk(group):
                if node.role == role and node.name == name:
                    return node
        raise LookupError(f"{self.driver.page.url} has no {role} {name!r}")

    def click(self, role: str, name: str, within: str = "") -> None:
        self.driver.click(self.element(role, name, within).id)

    def filter(self) -> None:
        """Narrow the results to the wishes, as the site's skin has it."""
        if self.site.skin == "steps":
            self._filter_in_steps()
        elif self.site.skin == "tabs":
            for label, wish in self.wishes.items():
                self.click("link", label, "Filter by")
                self.click("link", wish, label)
        else:
            if self.site.skin == "drawer":
                self.click("link", "Filter and sort")
            self._choose_all()
            self.click("button", "Apply filters")

    def _filter_in_steps(self) -> None:
        self.click("link", "Choose step by step")
        while True:
            self._choose_all()
            if not any(node.name == "Next" for node in self.driver.page.elements.values()):
                break
            self.click("button", "Next")
        self.click("button", "Show results")

    def _choose_all(self) -> None:
        """Choose each wish that the page's form has a group of buttons or a list for."""
        for node in list(_walk(self.driver.page.root)):
            if node.role == "group" and node.name in self.wishes:
                self.click("radio", self.wishes[node.name], node.name)
            elif node.role == "combobox" and node.name in self.wishes:
                self.driver.select(node.id, self.wishes[node.name])

    def finish(self, found: list[Item]) -> str:
        """Do the operation on what was found."""
        operation, item = self.goal.operation, found[0]
        if operation == "compare":
            for item in found[:COMPARED]:
                self.click("button", f"Compare: {item.title}")
                self.driver.go_back()
        elif operation != "search":
            self.click("link", item.title)
        if operation == "cart":
            self.click("button", f"{self.words['add']}: {item.title}")
        if operation == "booking":
            self.click("link", self.words["book"])
            self.click("button", self.words["hold"])
        return f"{self.domain.fact}: {item.fact}" if operation == "lookup" else ""


def _walk(node: Node):
    yield node
    for child in node.children:
        yield from _walk(child)
