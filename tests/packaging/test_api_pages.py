"""The API's pages: they are what the sources say, and the sources say everything."""

from collections.abc import Iterator

import pytest
from scripts import api_pages
from scripts.api_pages import Page, Routine, Value

EVERY = list(api_pages.pages())


def test_the_pages_are_those_of_the_sources() -> None:
    """`make docs` writes them anew."""
    written = {path.name: path.read_text() for path in api_pages.PAGES.iterdir()}
    wanted = api_pages.files()
    outdated = sorted(name for name in written.keys() | wanted.keys() if written.get(name) != wanted.get(name))
    assert not outdated, "run `make docs` and commit what it wrote"


@pytest.mark.parametrize("page", EVERY, ids=[page.name for page in EVERY])
def test_everything_public_is_explained(page: Page) -> None:
    """Each name, argument, field and property; what happens without an option; which errors are raised."""
    assert not list(gaps(page))


def gaps(page: Page) -> Iterator[str]:
    if not page.prose:
        yield f"{page.name} has no docstring"
    for one in (*page.values, *page.properties):
        if not one.meaning:
            yield f"{page.name}.{one.name} has no docstring"
        yield from without_omission(page.name, one)
    for routine in (page.constructor, *page.routines):
        if routine is not None:
            yield from gaps_of(f"{page.name}.{routine.name}", routine)


def gaps_of(name: str, routine: Routine) -> Iterator[str]:
    if not routine.prose:
        yield f"{name} has no docstring"
    for one in routine.parameters:
        # What is passed on is somebody else's: CDK's options of a metric, boto3's requests.
        if not one.meaning and f"**{one.name}" not in routine.signature:
            yield f"{name} does not explain {one.name}"
        yield from without_omission(name, one)
    yield from (f"{name} does not say that it raises {error}" for error in routine.raised - set(routine.raises))


def without_omission(name: str, value: Value) -> Iterator[str]:
    if value.default is not None and "omitted" not in value.meaning:
        yield f"{name} does not say what happens when {value.name} is omitted"


def test_what_is_missing_would_be_noticed() -> None:
    """Of a function that explains nothing, everything is named."""
    option = Value("speed", "int", "1", "")
    bare = Routine("go", "go(speed: int = 1) -> None", "", (option,), {}, frozenset({"ValueError"}))
    assert list(gaps(Page("package", "go", "function", "", routines=(bare,)))) == [
        "go has no docstring",
        "go.go has no docstring",
        "go.go does not explain speed",
        "go.go does not say what happens when speed is omitted",
        "go.go does not say that it raises ValueError",
    ]
