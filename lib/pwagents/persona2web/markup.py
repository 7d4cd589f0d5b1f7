"""The elements of a page, read in one of two ways: by one script in Chromium, or from the HTML alone."""

from dataclasses import dataclass, field

from lxml import html
from lxml.html import HtmlElement

# In Chromium: the body's elements with what was typed and chosen since the page was loaded.
READ_PAGE = """() => {
  const read = element => {
    const node = {tag: element.localName, attrs: {}, children: []};
    for (const {name, value} of element.attributes) node.attrs[name] = value;
    if (node.tag === 'input') { node.value = element.value; node.checked = element.checked; }
    if (node.tag === 'option') node.selected = element.selected;
    for (const child of element.childNodes) {
      if (child.nodeType === 1) node.children.push(read(child));
      else if (child.nodeType === 3) node.children.push(child.data);
    }
    return node;
  };
  const status = performance.getEntriesByType('navigation')[0].responseStatus;
  const is_html = document.contentType === 'text/html';
  return {body: read(document.body), title: document.title, url: location.href, status, is_html};
}"""

INPUTS = {"search": "searchbox", "radio": "radio", "checkbox": "checkbox", "text": "textbox"}


@dataclass(eq=False)
class Element:
    """An element of a page, with what was typed into it or chosen.

    Attributes:
        children: elements and texts.
        ref: its place among the body's elements, in the order of the document; -1 for the body.
    """

    tag: str
    attrs: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)
    parent: "Element | None" = None
    value: str = ""
    checked: bool = False
    selected: bool = False
    ref: int = -1

    def descendants(self) -> list["Element"]:
        """All elements below this one, in the order of the document."""
        found, ahead = [], self._inside()
        while ahead:
            found.append(element := ahead.pop())
            ahead += element._inside()
        return found

    def _inside(self) -> list["Element"]:
        """The elements right below this one, the last one first."""
        return [child for child in reversed(self.children) if isinstance(child, Element)]

    def closest(self, tag: str) -> "Element | None":
        """The nearest element of a tag above this one."""
        above = self.parent
        while above is not None and above.tag != tag:
            above = above.parent
        return above


def from_json(node: dict, parent: Element | None = None) -> Element:
    """The body that :data:`READ_PAGE` returned."""
    element = Element(node["tag"], node["attrs"], parent=parent, value=node.get("value", ""))
    element.checked, element.selected = node.get("checked", False), node.get("selected", False)
    element.children = [
        child if isinstance(child, str) else from_json(child, element) for child in node["children"]
    ]
    return element


def parse_html(text: str) -> tuple[str, Element]:
    """Title and body of a page as it is when it is loaded; tags must be closed, as in our templates."""
    page = html.document_fromstring(text)
    body = _from_lxml(page.find("body"))
    for element in body.descendants():
        _set_out(element)
    return " ".join(page.findtext("head/title").split()), body


def _from_lxml(node: HtmlElement, parent: Element | None = None) -> Element:
    element = Element(node.tag, dict(node.attrib), parent=parent)
    if node.text:
        element.children.append(node.text)
    for child in node:
        element.children.append(_from_lxml(child, element))
        if child.tail:
            element.children.append(child.tail)
    return element


def _set_out(element: Element) -> None:
    """What a control holds when the page is loaded."""
    if element.tag == "input":
        unnamed = "on" if element.attrs.get("type") in ("radio", "checkbox") else ""
        element.value = element.attrs.get("value", unnamed)
        element.checked = "checked" in element.attrs
    if element.tag == "select":
        options = [option for option in element.descendants() if option.tag == "option"]
        chosen = [option for option in options if "selected" in option.attrs] or options
        for option in options:
            option.selected = option is (chosen[-1] if "selected" in chosen[0].attrs else chosen[0])
