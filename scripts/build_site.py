"""Build the documentation as a site: build/site/index.html. Needs no network once its packages are there.

The pages of docs, the changelog, the contributor's guide and the pages of the codes are laid out in build/site-source,
where the sections of docs/README.md become the navigation. Sphinx then builds them; a warning is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
CODES = "reference/codes"
LINK = re.compile(r"(?P<begin>!?\[)(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>(?:#[^)]*)?)\)")
SECTION = re.compile(r"^(?:## ([^:\n]+).*|([A-Z][a-z ]+):)$", re.MULTILINE)
"""A heading, or the words before a group of links: each is a part of the navigation."""
MOVED = {"README.md": "readme.md"} | {
    f"{name}.md": f"{name.lower()}.md"
    for name in (
        "ADOPTERS", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "GOVERNANCE", "MAINTAINERS", "ROADMAP",
        "SECURITY", "SELF-ASSESSMENT", "SUPPORT", "charts/mooring/README",
    )
}  # fmt: skip
"""Pages of the repository's root, and where they stand in the site."""
DOORS = "| you ask | begin with |\n|---|---|\n"
PLAYGROUND = '<a href="playground/index.html">the planner in your browser, with lessons</a>'
"""Stands beside the pages (scripts/build_playground.py)."""


def main() -> int:
    """Lay the pages out and build them; return Sphinx's exit code."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in sorted((ROOT / "docs").rglob("*")):
        if page.suffix in (".md", ".svg", ".png"):
            _write(page.relative_to(ROOT / "docs"), page)
    for name, place in MOVED.items():
        _write(Path(place), ROOT / name)
    _write_codes()
    _write_index()
    _write_list("decisions", "Decisions", "Why Mooring is as it is: a page for what is hard to take back.")
    with (SOURCE / "spec" / "README.md").open("a", encoding="utf-8") as book:
        book.write("\n".join(["", *_toctree(_pages(SOURCE / "spec"))]) + "\n")
    for name in ("conf.py", "scorer.js"):
        shutil.copy(ROOT / "docs" / "site" / name, SOURCE / name)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "--fresh-env",
        "-b",
        "html",
    ]
    done = subprocess.run([*command, str(SOURCE), str(SITE)], check=False)  # noqa: S603 - our own words
    if done.returncode == 0:
        print(f"{(SITE / 'index.html').relative_to(ROOT)}")
    return done.returncode


def _write(place: Path, page: Path) -> None:
    """Put one file at its place in the site, with its links led to where their targets stand."""
    target = SOURCE / place
    target.parent.mkdir(parents=True, exist_ok=True)
    if page.suffix != ".md":
        shutil.copy(page, target)
        return
    text = page.read_text(encoding="utf-8")
    target.write_text(LINK.sub(lambda match: _led(match, page, place), text), encoding="utf-8")


def _led(match: re.Match[str], page: Path, place: Path) -> str:
    """Return a link with its target where it stands in the site; the mere text of a link to what is no page."""
    if "://" in match["target"] or match["target"].startswith("mailto:"):
        return match[0]
    meant = (page.parent / match["target"]).resolve().relative_to(ROOT)
    if meant.parts[0] == "docs":
        led = Path(*meant.parts[1:])
        led = Path("index.md") if led == Path("README.md") else led if led.suffix else led / "index.md"
    elif str(meant) in MOVED:
        led = Path(MOVED[str(meant)])
    elif meant.match("src/mooring/explanations/codes/pages/*.md"):
        led = Path(CODES, meant.name)
    else:
        return match["text"]
    return f"{match['begin']}{match['text']}]({_relative(led, place.parent)}{match['anchor']})"


def _relative(target: Path, folder: Path) -> str:
    up = [".."] * len(folder.parts)
    return "/".join([*up, *target.parts])


def _write_codes() -> None:
    for page in (ROOT / "src" / "mooring" / "explanations" / "codes" / "pages").glob("MOOR-*.md"):
        _write(Path(CODES, page.name), page)
    _write_list(CODES, "All codes", "`mooring explain CODE` prints each of these pages.")


def _pages(folder: Path) -> list[str]:
    return sorted(page.stem for page in folder.glob("*.md") if page.name != "README.md")


def _write_list(folder: str, title: str, about: str) -> None:
    """Give a folder a page that lists its pages by their headings."""
    names = _pages(SOURCE / folder)
    headings = [(SOURCE / folder / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0] for name in names]
    links = [f"* [{heading.removeprefix('# ')}]({name}.md)" for name, heading in zip(names, headings, strict=True)]
    lines = [f"# {title}", "", about, "", *links, "", *_toctree(names)]
    (SOURCE / folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_index() -> None:
    """Make the start page of docs/README.md; each of its sections and groups becomes a part of the navigation."""
    index = SOURCE / "README.md"
    text = index.read_text(encoding="utf-8")
    index.unlink()
    if (SITE / "playground" / "index.html").exists():
        text = text.replace(DOORS, f"{DOORS}| Can I try it here? | {PLAYGROUND} |\n", 1)
    parts = [text]
    found = list(SECTION.finditer(text))
    for section, following in zip(found, [*found[1:], None], strict=True):
        body = text[section.end() : following.start() if following else len(text)]
        targets = [link["target"] for link in LINK.finditer(body)]
        entries = [target.removesuffix(".md") for target in targets if target.endswith(".md")]
        entries = [entry for entry in entries if not entry.startswith("spec/") or entry == "spec/README"]
        caption = section[1] or section[2]
        if caption == "Reference":
            entries.append(f"{CODES}/index")
        if caption.startswith("For people"):
            entries += ["readme", "charts/mooring/readme"]
        if entries:
            parts += ["", *_toctree(entries, caption)]
    (SOURCE / "index.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


def _toctree(entries: list[str], caption: str = "") -> list[str]:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return ["```{toctree}", *options, "", *dict.fromkeys(entries), "```"]


if __name__ == "__main__":
    sys.exit(main())
