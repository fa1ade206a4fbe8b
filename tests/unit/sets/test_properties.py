"""Properties of manifests and of the keys of sets, for random input."""

import csv
import io
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.protocol.errors import Unprocessable
from intake_ledger.set_members.forms import MAX_PARTS, FormKind, FormSettings, PartsFormat
from intake_ledger.sets.manifest import parts_of

NAMES = st.text('ab./:\\ué"\n,', max_size=8) | st.sampled_from(["s3://b/a", "/a", "../a", "m", "key"])
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.lists(NAMES | st.none() | st.integers(), max_size=5).map(lambda names: json.dumps(names).encode()),
    st.lists(NAMES, max_size=5).map(lambda names: "\n".join(["key", *names]).encode()),
)


@given(CONTENTS, st.sampled_from(PartsFormat), st.booleans())
def test_any_manifest_gives_keys_that_can_be_parts_or_a_reason(
    content: bytes, parts: PartsFormat, absolute: bool
) -> None:
    """No other exception: it would return the message again and again."""
    form = FormSettings(FormKind.MANIFEST, "**", parts=parts, absolute=absolute)
    keys: dict[str, str | None] = {}
    with suppress(Unprocessable):
        keys = parts_of(content, "f/m", form, bucket="b", why_never=lambda key: "never" if key.endswith("b") else None)
    assert len(set(keys)) == len(keys) <= MAX_PARTS
    for key in keys:
        assert key != "f/m"
        assert 1 <= len(key.encode()) <= 1_024
        assert not {".", ".."} & set(key.split("/"))
        assert not key.endswith("b")


KEYS = st.lists(
    st.tuples(
        st.text("ab.\u2028\x85\x0b\x1c\r\n\t ,;\"'é", min_size=1, max_size=8), st.none() | st.text("v1.", min_size=1)
    ),
    max_size=5,
    unique_by=lambda part: part[0],
).map(lambda parts: {key: version for key, version in parts if not {".", ".."} & set(key.split("/"))})


@pytest.mark.failure_mode("F271")
@given(KEYS)
def test_a_manifest_gives_exactly_the_keys_and_versions_that_were_written(parts: dict[str, str | None]) -> None:
    """With the writers that people use: json, csv, and lines for keys without line ends."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerows([("key", "versionId"), *((key, version or "") for key, version in parts.items())])
    as_json = [key if version is None else {"key": key, "versionId": version} for key, version in parts.items()]
    assert _read(text.getvalue(), PartsFormat.CSV) == parts
    assert _read(json.dumps(as_json), PartsFormat.JSON) == parts
    if not any({"\r", "\n"} & set(key) for key in parts):
        assert list(_read("\n".join(parts) or "\n", PartsFormat.LINES)) == list(parts)


def _read(text: str, parts: PartsFormat) -> dict[str, str | None]:
    form = FormSettings(FormKind.MANIFEST, "m", parts=parts)
    return parts_of(text.encode(), "m", form, bucket="b", why_never=lambda _: None)


@given(st.text("ab/", min_size=1, max_size=12), st.sampled_from(["*/_S", "a/*/_S", "_S", "*/", "a/*/"]))
def test_a_set_has_itself_as_its_set_and_its_folder_begins_its_keys(key: str, pattern: str) -> None:
    """So each message about a part, a marker or a set finds the same set."""
    quiet = pattern.endswith("/")
    form = FormSettings(FormKind.QUIET if quiet else FormKind.MARKER, pattern, quiet_seconds=60 if quiet else 0)
    found = form.set_of(key)
    if found is not None:
        assert form.set_of(found) == found
        assert key.startswith(form.folder(found))
        assert form.is_control(found) is not quiet
