"""Text and JSON as the database can hold them; ids."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_django.models.fields import TEXT_LIMIT, clean_text, dump_json, load_json
from cronoq_django.models.ids import uuid7

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_what_is_accepted_reads_back_equal(value: Any) -> None:
    assert load_json(dump_json(value)) == value


@given(st.text(st.characters(), max_size=50) | st.just("\0\ud800x\udfff"))
def test_clean_text_can_be_stored(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert len(cleaned) == len(text)


def test_text_is_bounded() -> None:
    assert len(clean_text("x" * 10**6)) == TEXT_LIMIT
    assert clean_text("abc", 2) == "a…"


def test_the_place_of_what_is_refused_is_named() -> None:
    with pytest.raises(TypeError, match=r"args\[1\]\['a'\]\[0\]: set is not a JSON value"):
        dump_json([1, {"a": [{1}]}], "args")


def test_deep_nesting_is_refused_as_an_error_that_callers_know() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="too deeply"):
        dump_json(deep)


def test_ids_increase_within_a_process_whatever_thread_makes_them() -> None:
    made: list[Any] = []

    def make() -> None:
        made.append([uuid7() for _ in range(5000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == sorted(ids) for ids in made)
    assert len({one for ids in made for one in ids}) == 20_000
    assert all(one.version == 7 and one.variant == "specified in RFC 4122" for one in made[0])


def test_ids_increase_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = uuid7()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert uuid7() > before


def test_json_text_is_compact() -> None:
    assert dump_json({"a": [1, 2]}) == '{"a":[1,2]}' == json.dumps({"a": [1, 2]}, separators=(",", ":"))
