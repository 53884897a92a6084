"""Turns edtrace's renderings (narration, pictures, links, …) into HTML without scripts or inline styles."""

import base64
import json
import mimetypes
import posixpath
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nh3
from latex2mathml.converter import convert as mathml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from mdit_py_plugins.dollarmath import dollarmath_plugin
from PIL import Image, UnidentifiedImageError

from ..read.source import code_lines
from ..read.trace import Rendering

MAX_VIDEO_BYTES = 256 * 1024
"""A longer video is linked, not embedded: the page must stay small enough to commit and to mail."""

WIDE = 700
"""Pixels; a narrower picture is shown whole on a phone."""

ALLOWED_HTML = {
    **dict.fromkeys(("b", "br", "del", "details", "em", "i", "ins", "kbd", "mark", "s", "small", "strong"), set()),
    **dict.fromkeys(("sub", "summary", "sup", "u", "wbr"), set()),
    "font": {"color"},
}
"""HTML that narration may have, as edtrace's viewer renders it: tags and their attributes."""

HTML_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")

MARKDOWN_TAGS = set("a blockquote code div h1 h2 h3 h4 h5 h6 hr li ol p pre span table tbody td th thead tr ul".split())
"""What markdown is made of on the page."""

OWN_HTML = re.compile(
    r'<math\b.*?</math>|<pre class="verbatim".*?</pre>|<span class="wide".*?</span>|<img\b[^>]*>', re.DOTALL
)
"""Pieces that the renderer has made itself, with more than narration may have."""

UNITLESS = {"fontWeight", "lineHeight", "opacity", "flex", "order", "zIndex"}

PLACEHOLDER = "\ue000{}\ue001"
"""Stands for a finished piece of HTML inside markdown; private-use characters, which text itself loses first."""


class Renderer:
    """Renders for one page that lies in `page_dir` (relative to `root`, where the lecture's paths start).

    `anchor` gives the link attributes of a source line, or None when that line is not on the page.
    """

    def __init__(self, root: Path, page_dir: str, anchor: Callable[[str, int], Markup | None]) -> None:
        self.root = root
        self.page_dir = page_dir
        self.anchor = anchor
        self.styles: dict[str, str] = {}
        self._heading_level = 1
        self._markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
        self._markdown.use(dollarmath_plugin, renderer=_math, allow_space=False, allow_digits=False)
        self._markdown.validateLink = lambda url: self.address(url) is not None
        self._markdown.normalizeLink = lambda url: self.address(url) or url
        self._markdown.add_render_rule("html_inline", self._html)
        self._markdown.add_render_rule("html_block", self._html)
        self._markdown.add_render_rule("fence", self._fence)
        self._markdown.add_render_rule("code_block", self._fence)
        self._markdown.add_render_rule("image", self._markdown_image)
        self._markdown.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>')
        self._markdown.add_render_rule("table_close", lambda *_: "</table></div>")

    def address(self, url: str) -> str | None:
        """Where a link leads from the page; None when it is no http, relative or in-page link."""
        try:
            parts = urlsplit(url.strip())
        except ValueError:
            return None
        if parts.scheme in ("http", "https") and parts.netloc:
            return url.strip()
        if parts.scheme or parts.netloc or "\\" in url:
            return None
        if not parts.path:
            return url.strip()
        if parts.path.startswith("/"):
            return None
        return parts._replace(path=posixpath.relpath(parts.path, self.page_dir)).geturl()

    def render(self, renderings: Sequence[Rendering], joined: bool) -> list[Markup]:
        """One piece of HTML a rendering; where the line makes several side by side (`joined`), texts and links that
        follow each other become one paragraph."""
        pieces: list[Markup] = []
        index = 0
        while index < len(renderings):
            count = 1
            if _is_verbatim(renderings[index]):
                while index + count < len(renderings) and _is_verbatim(renderings[index + count]):
                    count += 1
                pieces.append(self._verbatim(renderings[index : index + count]))
            elif joined and renderings[index].type in ("markdown", "link"):
                while index + count < len(renderings) and self._flows(renderings[index : index + count + 1]):
                    count += 1
                pieces.append(self._flow(renderings[index : index + count]))
            else:
                pieces.append(self._one(renderings[index]))
            index += count
        return pieces

    # Text

    def _flows(self, run: Sequence[Rendering]) -> bool:
        """Whether the last of `run` continues the paragraph or list item of those before."""
        if any(item.type not in ("markdown", "link") or _is_verbatim(item) for item in run[-2:]):
            return False
        before, after = run[-2], run[-1]
        if before.type == "markdown":
            tokens = self._markdown.parse(_text(before.data))
            if tokens and tokens[-1].type not in ("paragraph_close", "bullet_list_close", "ordered_list_close"):
                return False
        if after.type == "markdown":
            return [token.type for token in self._markdown.parse(_text(after.data))] in (
                [],
                ["paragraph_open", "inline", "paragraph_close"],
            )
        return True

    def _flow(self, run: Sequence[Rendering]) -> Markup:
        source, links = "", []
        for item in run:
            if item.type == "link":
                if source and not source[-1].isspace() and source[-1] not in "([":
                    source += " "
                source += PLACEHOLDER.format(len(links))
                links.append(self._link(item))
            else:
                text = _text(item.data)
                if source.endswith(PLACEHOLDER[-1]) and text[:1].isalnum():
                    source += " "
                source += text
        html = self.markdown(source)
        for index, link in enumerate(links):
            html = Markup(html.replace(PLACEHOLDER.format(index), link))
        return self._styled(html, run[0].style)

    def markdown(self, source: str) -> Markup:
        """`source` as HTML; a heading goes at most one level below the heading before it, under the page's h1."""
        env: dict[str, Any] = {}
        tokens = self._markdown.parse(source, env)
        for token in tokens:
            if token.type == "heading_open":
                self._heading_level = min(int(token.tag[1]) + 1, self._heading_level + 1, 6)
                token.attrJoin("class", f"level{token.tag[1]}")
                token.tag = f"h{self._heading_level}"
            elif token.type == "heading_close":
                token.tag = f"h{self._heading_level}"
            elif token.type in ("th_open", "td_open") and "style" in token.attrs:
                token.attrs["class"] = str(token.attrs.pop("style")).split(":")[1]
        html = self._markdown.renderer.render(tokens, self._markdown.options, env)
        has_html = any(token.type == "html_block" for token in tokens) or any(
            child.type == "html_inline" for token in tokens for child in token.children or []
        )
        return Markup(_balanced(html) if has_html else html)

    def _html(self, tokens: Sequence[Token], index: int, *_: object) -> str:
        """HTML in narration: allowed tags with their allowed attributes; what has any other tag is text."""
        content = tokens[index].content
        if set(map(str.lower, re.findall(r"<\s*[/!?]?\s*([\w-]*)", content))) <= set(ALLOWED_HTML):
            return HTML_TAG.sub(lambda tag: _clean_tag(tag[0]), content)
        text = escape(content.rstrip("\n"))
        return f"<p>{text}</p>" if tokens[index].type == "html_block" else str(text)

    def headings(self, rendering: Rendering) -> list[tuple[int, str]]:
        """Level and plain text of each heading in a rendering."""
        if rendering.type != "markdown" or _is_verbatim(rendering):
            return []
        tokens = self._markdown.parse(_text(rendering.data))
        return [
            (
                int(token.tag[1]),
                "".join(child.content for child in inline.children or [] if child.type != "html_inline"),
            )
            for token, inline in zip(tokens, tokens[1:], strict=False)
            if token.type == "heading_open"
        ]

    def _markdown_image(self, tokens: Sequence[Token], index: int, *_: object) -> str:
        token = tokens[index]
        source = str(token.attrs["src"])
        if urlsplit(source).scheme:
            return Markup('<a href="{}">{}</a>').format(source, token.content or source)
        return self._image(posixpath.normpath(posixpath.join(self.page_dir, source)), token.content)

    def _fence(self, tokens: Sequence[Token], index: int, *_: object) -> str:
        code = tokens[index].content.rstrip("\n")
        coloured = Markup("\n").join(code_lines("", code, {})) if tokens[index].info.strip() == "python" else code
        return Markup('<pre class="verbatim" tabindex="0"><code>{}</code></pre>').format(coloured)

    def _verbatim(self, run: Sequence[Rendering]) -> Markup:
        text = "\n".join(_text(item.data) for item in run)
        return self._styled(Markup('<pre class="verbatim" tabindex="0">{}</pre>').format(text), run[0].style)

    # Everything else

    def _one(self, item: Rendering) -> Markup:
        if item.type in ("markdown", "link"):
            return self._flow([item])
        if item.type == "text":
            return self._verbatim([item])
        if item.type == "note":
            return Markup('<div class="note"><strong>Note</strong>{}</div>').format(self.markdown(_text(item.data)))
        if item.type == "image":
            return self._styled(self._image(str(item.data)), item.style)
        if item.type == "video":
            return self._styled(self._video(str(item.data)), item.style)
        if item.type in ("plot", "graph") and isinstance(item.data, dict):
            return self._data(item.type, item.data)
        return _missing(f"A rendering of type {item.type} is not shown here; its data:", _text(item.data))

    def _link(self, item: Rendering) -> Markup:
        label = _text(item.data)
        if item.internal_link is not None:
            path, line = item.internal_link
            if (here := self.anchor(path, line)) is not None:
                return Markup("<a {}><code>{}</code></a>").format(here, label)
            if (self.root / path).is_file() and (address := self.address(path.replace("\\", "/"))) is not None:
                return Markup('<a href="{}"><code>{}</code></a> ({}, line {})').format(address, label, path, line)
            return Markup("<code>{}</code> ({}, line {})").format(label, path, line)
        reference = item.external_link or {}
        title = _text(reference.get("title") or reference.get("url") or label).strip()
        address = self.address(_text(reference["url"])) if reference.get("url") else None
        if address is not None:
            shown = Markup('<a href="{}">{}</a>').format(address, title)
        elif reference.get("url"):
            shown = Markup("{} ({})").format(title, reference["url"])
        else:
            shown = escape(title)
        authors = reference.get("authors")
        named = [", ".join(map(_text, authors))] if isinstance(authors, list) and authors else []
        named += [_text(reference[key]) for key in ("organization", "date") if reference.get(key)]
        if named:
            shown += Markup(' <span class="by">{}</span>').format(", ".join(named))
        for key in ("description", "notes"):
            if reference.get(key):
                shown += Markup(' <span class="by">{}</span>').format(_text(reference[key]))
        return shown

    def _image(self, path: str, alt: str = "") -> Markup:
        name = posixpath.basename(path)
        kind = mimetypes.guess_type(name)[0]
        try:
            content = (self.root / path).read_bytes()
        except OSError as error:
            return _missing(f"The picture {path} cannot be shown: {error.strerror}.")
        if kind is None or not kind.startswith("image/"):
            return _missing(f"{path} cannot be shown: its name is not that of a picture.")
        size, wide = Markup(""), False
        if kind != "image/svg+xml":
            try:
                with Image.open(self.root / path) as picture:
                    size, wide = Markup(' width="{}" height="{}"').format(*picture.size), picture.width >= WIDE
                    alt = alt or str(picture.info.get("Description", ""))
            except (UnidentifiedImageError, OSError) as error:
                return _missing(f"The picture {path} cannot be shown: {error}.")
        alt = alt or re.sub(r"[-_]+", " ", name.rsplit(".", 1)[0])
        html = Markup('<img src="{}" alt="{}"{}>').format(_data_url(kind, content), alt, size)
        # On a narrow screen a wide figure is moved sideways: made smaller, its captions could not be read.
        return Markup('<span class="wide" tabindex="0">{}</span>').format(html) if wide else html

    def _video(self, path: str) -> Markup:
        name = posixpath.basename(path)
        kind = mimetypes.guess_type(name)[0] or ""
        address = self.address(path.replace("\\", "/")) or path
        try:
            size = (self.root / path).stat().st_size
            if size <= MAX_VIDEO_BYTES and kind.startswith("video/"):
                content = _data_url(kind, (self.root / path).read_bytes())
                label = f"video {name}"
                return Markup('<video controls src="{}" aria-label="{}"></video>').format(content, label)
        except OSError as error:
            return _missing(f"The video {path} cannot be shown: {error.strerror}.")
        return Markup('<p class="missing">The video is not in the page ({:.1f} MB): <a href="{}">{}</a></p>').format(
            size / 1e6, address, name
        )

    def _data(self, kind: str, spec: dict) -> Markup:
        if kind == "graph" and isinstance(spec.get("nodes"), list) and isinstance(spec.get("edges"), list):
            return _missing("A graph, not drawn here; its nodes and edges:", _graph_text(spec))
        language = "Vega-Lite" if kind == "plot" else "Cytoscape"
        text = json.dumps(spec, indent=1, ensure_ascii=False)
        return _missing(f"A {kind}, not drawn here; its {language} data:", text)

    def _styled(self, html: Markup, style: dict[str, Any]) -> Markup:
        """`html` inside a class of its own when `style` asks for something: the page allows no inline styles."""
        rules = ";".join(rule for key, value in style.items() if (rule := _css(key, value)))
        if not rules:
            return html
        name = self.styles.setdefault(rules, f"s{len(self.styles)}")
        return Markup('<div class="{}">{}</div>').format(name, html)


def _clean_tag(tag: str) -> str:
    """An opening or closing tag with what is allowed of it."""
    name = re.match(r"</?([a-zA-Z]+)", tag)
    if name is None or tag.startswith("</"):
        return tag
    attributes = {allowed: set(names) for allowed, names in ALLOWED_HTML.items()}
    return nh3.clean(tag, tags=set(ALLOWED_HTML), attributes=attributes).removesuffix(f"</{name[1].lower()}>")


def _balanced(html: str) -> str:
    """Narration that has HTML of its own, with each tag closed where it belongs: none may reach beyond it."""
    own: list[str] = []

    def keep(found: re.Match) -> str:
        own.append(found[0])
        return PLACEHOLDER.format(f"own{len(own) - 1}")

    html = OWN_HTML.sub(keep, html)
    attributes = {tag: set(names) for tag, names in ALLOWED_HTML.items() if names} | {
        "*": {"class", "tabindex"},
        "a": {"href"},
        "ol": {"start"},
    }
    html = nh3.clean(html, tags=set(ALLOWED_HTML) | MARKDOWN_TAGS, attributes=attributes, link_rel=None)
    for index, piece in enumerate(own):
        html = html.replace(PLACEHOLDER.format(f"own{index}"), piece)
    return html


def _is_verbatim(item: Rendering) -> bool:
    """edtrace writes `text(…, verbatim=True)` as markdown in this style, one rendering a line."""
    return item.type == "markdown" and item.style.get("whiteSpace") == "pre" and "fontFamily" in item.style


def _text(data: object) -> str:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=1)
    return re.sub("[\ue000\ue001]", "\ufffd", text)


def _css(key: str, value: object) -> str:
    """One declaration, as React would write it; nothing when it is not plainly a name and a value."""
    if not re.fullmatch(r"[a-zA-Z]+", key) or isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    text = str(value) if isinstance(value, str) or key in UNITLESS else f"{value:g}px"
    if not re.fullmatch(r"[\w\s.,%#()+*/'-]*", text) or "url" in text.lower() or "/*" in text:
        return ""
    return f"{re.sub('([A-Z])', lambda found: '-' + found[1].lower(), key)}:{text}"


def _math(content: str, options: dict[str, Any]) -> str:
    display = bool(options.get("display_mode"))
    try:
        html = mathml(content, display="block" if display else "inline")
    except Exception as error:  # noqa: BLE001  latex2mathml raises many kinds; the reader sees the source and why
        return Markup('<code class="missing" title="not shown as a formula: {}">{}</code>').format(error, content)
    return f'<div class="scroll" tabindex="0">{html}</div>' if display else html


def _missing(message: str, data: str = "") -> Markup:
    block = Markup('<pre class="verbatim" tabindex="0">{}</pre>').format(data) if data else Markup("")
    return Markup('<div class="missing"><p>{}</p>{}</div>').format(message, block)


def _data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _graph_text(spec: dict) -> str:
    def data_of(items: list) -> list[dict]:
        return [item["data"] for item in items if isinstance(item, dict) and isinstance(item.get("data"), dict)]

    edges = data_of(spec["edges"])
    names = {str(node.get("id")): str(node.get("label", node.get("id"))) for node in data_of(spec["nodes"])}
    lines = list(names.values())
    for edge in edges:
        ends = [names.get(str(edge.get(end)), str(edge.get(end))) for end in ("source", "target")]
        lines.append(" → ".join(ends) + (f": {edge['label']}" if "label" in edge else ""))
    return "\n".join(lines)
