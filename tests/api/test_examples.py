"""docs/api.md: its examples give what it says, and it names every argument."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import plainres

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.mark.usefixtures("pool_in_this_process")
def test_the_examples_give_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("plainres.report.build.paper_figures", lambda tables: ())
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags, encoding="utf-8")
    assert found.attempted > 15 and found.failed == 0


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("plainres.run", plainres.run),
        ("plainres.load", plainres.load),
        ("plainres.evidence", plainres.evidence),
        ("study.compare", plainres.Study.compare),
    ],
)
def test_the_page_names_every_argument(name: str, function: object) -> None:
    signature = inspect.signature(function)  # type: ignore[arg-type]  # found by its name
    shown = re.search(rf"{re.escape(name)}\((.*?)\)[`\n]", PAGE.read_text()).group(1)  # type: ignore[union-attr]  # else it fails here
    wanted = []
    for argument in signature.parameters.values():
        stars = "**" if argument.kind is argument.VAR_KEYWORD else ""
        default = "" if argument.default is argument.empty else f"={argument.default!r}"
        wanted += [f"{stars}{argument.name}{default}"] if argument.name != "self" else []
    given = [word.strip().replace('"', "'") for word in shown.split(", ") if word.strip() != "*"]
    assert given == wanted
