"""Reports in HTML as programs read them: balanced, well-formed, referring to nothing, drawn inside of their pictures."""
import html.parser
import pathlib
import re
import xml.etree.ElementTree

from command_bed import check


class Page(html.parser.HTMLParser):
    """Tags in balance; what refers to something else; the text outside of style."""
    VOID = {"meta"}

    def __init__(self, text):
        super().__init__()
        self.open, self.trouble, self.tags, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        self.trouble += [f"<{tag}> is open" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.trouble += [f"{tag} {k}={v}" for k, v in attrs if k in ("src", "href", "xlink:href", "style", "srcset") or
                         k.startswith("on")]
        if tag in ("script", "link", "img", "iframe", "object", "base"):
            self.trouble.append(f"<{tag}>")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.trouble.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


def page(name, path):
    """Of a well-formed file that stands alone."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    p = Page(text)
    check(not p.trouble, f"{name}: {p.trouble[:5]}")
    check("url(" not in text and "@import" not in text and "http" not in text and "null" not in text and
          not re.search(r"\b(nan|inf)\b", text), f"{name}: refers to nothing, holds numbers")
    try:
        p.tree = xml.etree.ElementTree.fromstring(text)
    except xml.etree.ElementTree.ParseError as e:
        check(False, f"{name}: no XML: {e}")
        p.tree = xml.etree.ElementTree.Element("html")
    for svg in p.tree.iter("svg"):
        w, h = map(float, svg.get("viewBox").split()[2:])
        far = [(x.tag, x.attrib) for x in svg.iter() for k, most in (("x", w), ("x1", w), ("x2", w), ("cx", w), ("y", h),
               ("y1", h), ("y2", h), ("cy", h)) if k in x.attrib and not 0 <= float(x.get(k)) <= most]
        check(not far, f"{name}: inside of the picture: {far[:3]}")
    return p
