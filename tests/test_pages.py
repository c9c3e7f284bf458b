"""Pages about the project itself: the index of docs/ and CITATION.cff."""

import datetime
import re
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

import plainres

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Of the Citation File Format 1.2.0: what a file must have, and what else this one uses.
REQUIRED = {"cff-version", "message", "title", "authors"}
KNOWN = REQUIRED | {"abstract", "type", "version", "license", "keywords", "references", "date-released"}
PERSON, ENTITY = {"family-names", "given-names"}, {"name"}


def test_the_index_has_every_page_once_and_no_dead_link() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "docs" / "README.md").read_text())
    assert all((ROOT / "docs" / link).is_file() for link in links), links
    pages = [link for link in links if "/" not in link]
    assert sorted(pages) == sorted(p.name for p in (ROOT / "docs").glob("*.md") if p.name != "README.md")
    notebooks = [Path(link).name for link in links if link.endswith(".ipynb")]
    assert notebooks == sorted(p.name for p in (ROOT / "notebooks").glob("*.ipynb"))


def test_one_version_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == PROJECT["version"] == plainres.__version__


def test_the_citation_is_a_valid_file() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert REQUIRED <= set(cited) <= KNOWN
    assert cited["cff-version"] == "1.2.0" and cited["type"] == "software"
    assert cited["license"] == PROJECT["license"] and set(cited["keywords"]) == set(PROJECT["keywords"])
    assert isinstance(cited.get("date-released", datetime.date.min), datetime.date)
    for work in (cited, *cited["references"]):
        assert {"title", "authors", "type"} <= set(work)
        assert work["authors"] and all(set(author) in (PERSON, ENTITY) for author in work["authors"])


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_links_in_the_notebooks_are_alive(path: Path) -> None:
    text = "".join(
        cell["source"] for cell in nbformat.read(path, as_version=4).cells if cell["cell_type"] == "markdown"
    )
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links and all((path.parent / link).is_file() for link in links), links
