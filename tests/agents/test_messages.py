"""The codec: decoding reverses encoding, and damaged messages are refused with MessageError."""

import json
import math
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agents import messages
from agents.actions import Actions
from agents.headers import LONGEST_S, MAX_COUNT
from agents.messages import (
    MAX_ACTIONS,
    MAX_FAILURE_BYTES,
    MAX_HELLO_BYTES,
    MAX_PART_BYTES,
    OUTCOME,
    Header,
    Hello,
    Kind,
    MessageError,
    Step,
    decode_actions,
    decode_failure,
    decode_header,
    decode_hello,
    decode_step,
    encode_actions,
    encode_failure,
    encode_header,
    encode_hello,
    encode_packed_step,
    encode_step,
)
from agents.notes import decode_note, encode_note
from tests import damage
from tests.damage import damaged_messages, make_step, plain, whole_messages

DTYPE = np.dtype("uint8")
quietly = settings(max_examples=50, deadline=None, derandomize=True, database=None)
floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
counts = st.integers(0, MAX_COUNT)


def refusal(decode: Callable[[], Any]) -> str:
    """The reason that `decode` gives for its refusal; any other error fails the test."""
    with pytest.raises(MessageError) as caught:
        decode()
    assert type(caught.value) is MessageError
    return caught.value.reason


@quietly
@given(
    st.sampled_from(Kind),
    counts,
    counts,
    st.integers(0, 2**32 - 1),
    st.floats(0, LONGEST_S, width=32),
    st.floats(0, LONGEST_S, width=32),
)
def test_a_header_comes_out_as_it_went_in(
    kind: Kind, group: int, envs: int, sequence: int, waited_s: float, stepped_s: float
) -> None:
    header = Header(kind, group, envs, sequence, waited_s, stepped_s)
    assert decode_header(encode_header(header)) == header
    assert decode_header(memoryview(encode_header(header))) == header


@quietly
@given(
    st.text(max_size=200),
    st.lists(st.integers(1, 64), min_size=1, max_size=4) | st.just([100_000]),
    st.sampled_from(["uint8", "float32"]),
    st.builds(Actions, st.integers(1, MAX_ACTIONS))
    | st.builds(Actions, st.just(0), st.integers(1)),
    st.integers(1, MAX_COUNT),
    st.integers(1, 4) | st.just(600),
)
def test_a_hello_comes_out_as_it_went_in(
    token: str, shape: list[int], dtype: str, actions: Actions, groups: int, envs: int
) -> None:
    hello = Hello(token, tuple(shape), dtype, actions, groups, envs)
    assume(envs * math.prod(shape) * np.dtype(dtype).itemsize <= MAX_PART_BYTES)
    assume(envs * 4 * actions.size <= MAX_PART_BYTES)
    assert decode_hello(encode_hello(hello)) == hello


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("n", [1, 3, 32])
@pytest.mark.parametrize("shape", [(4,), (84, 84), (2, 3, 4, 5)])
def test_a_step_comes_out_as_it_went_in(dtype: str, n: int, shape: tuple[int, ...]) -> None:
    step = make_step(n, shape, dtype, seed=n)
    parts = plain(encode_step(Header(Kind.STEP, 0, n), step))
    decoded = decode_step(parts, shape, np.dtype(dtype))
    assert decoded.frames.dtype == dtype
    assert decoded.frames.shape == (n, *shape)
    np.testing.assert_array_equal(decoded.frames, step.frames)
    np.testing.assert_array_equal(decoded.outcomes, step.outcomes)


@quietly
@given(
    st.lists(
        st.tuples(
            floats32,
            floats32,
            st.integers(0, 2**31 - 1),
            st.sampled_from([-1.0, 0.0, 1.0]),
            *[st.integers(0, 1)] * 4,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_outcomes_have_the_documented_layout_on_the_wire(rows: list[tuple[Any, ...]]) -> None:
    step = Step(np.zeros((len(rows), 1), np.uint8), np.array(rows, OUTCOME))
    parts = plain(encode_step(Header(Kind.STEP, 0, len(rows)), step))
    assert list(damage.OUTCOME_LAYOUT.iter_unpack(parts[1])) == rows
    np.testing.assert_array_equal(decode_step(parts, (1,), DTYPE).outcomes, step.outcomes)


def with_infos(kind: Callable[..., list[bytes | memoryview]] = encode_step) -> list[bytes]:
    """The parts of a step of two environments with three numbers of their infos each."""
    infos = np.array([[1.5, np.nan, -2.0], [np.nan] * 3], np.float32)
    frames = np.zeros((2, 400), np.uint8)
    return plain(kind(Header(Kind.STEP, 0, 2), Step(frames, make_step(2).outcomes, infos)))


@pytest.mark.parametrize("encode", [encode_step, encode_packed_step])
def test_info_values_are_sent_as_a_separate_part(encode: Callable[..., Any]) -> None:
    decoded = decode_step(with_infos(encode), (400,), DTYPE, infos=3)
    assert decoded.infos is not None
    np.testing.assert_array_equal(decoded.infos, [[1.5, np.nan, -2.0], [np.nan] * 3])
    without = plain(encode_step(Header(Kind.STEP, 0, 3), make_step(3)))
    assert len(without) == 3 and decode_step(without, damage.SHAPE, DTYPE).infos is None


@pytest.mark.parametrize(
    ("infos", "last", "reason"),
    [
        (2, None, "info size"),
        (0, None, "part count"),
        (3, np.float32([1, np.inf, 1, 1, 1, 1]).tobytes(), "info values"),
        (3, b"", "info size"),
    ],
)
def test_infos_that_were_not_agreed_on_are_refused(
    infos: int, last: bytes | None, reason: str
) -> None:
    parts = with_infos()
    if last is not None:
        parts[3] = last
    with pytest.raises(MessageError) as refused:
        decode_step(parts, (400,), DTYPE, infos)
    assert refused.value.reason == reason


def test_frames_that_are_a_strided_view_come_out_whole() -> None:
    stacked = np.arange(2 * 4 * 6, dtype=np.uint8).reshape(2, 4, 3, 2)
    newest = stacked[:, -1]
    assert not newest.flags.c_contiguous
    step = Step(newest, make_step(2).outcomes)
    parts = plain(encode_step(Header(Kind.STEP, 0, 2), step))
    np.testing.assert_array_equal(decode_step(parts, (3, 2), DTYPE).frames, newest)


def test_contiguous_frames_are_sent_without_a_copy() -> None:
    step = make_step()
    sent = encode_step(Header(Kind.STEP, 0, damage.ENVS), step)[2]
    assert np.shares_memory(np.frombuffer(sent, np.uint8), step.frames)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_actions_come_out_as_they_went_in(dtype: Any) -> None:
    actions = np.array([0, 3, 1], dtype)
    parts = encode_actions(7, 2**32 - 1, actions)
    decoded = decode_actions(parts, Actions(4))
    assert decoded.dtype == np.int32
    assert decoded.tolist() == [0, 3, 1]
    header = decode_header(parts[0])
    assert (header.kind, header.group, header.envs) == (Kind.ACTIONS, 7, 3)
    assert header.sequence == 2**32 - 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_of_several_numbers_come_out_as_they_went_in(dtype: Any) -> None:
    actions = np.array([[0.5, -1.0], [1.0, 0.0], [-0.25, 0.125]], dtype)
    decoded = decode_actions(encode_actions(7, 1, actions), Actions(0, 2))
    assert decoded.dtype == np.float32
    np.testing.assert_array_equal(decoded, actions)


@pytest.mark.parametrize("value", [1.0000001, -1.5, *damage.NOT_FINITE])
def test_an_action_outside_the_bounds_is_refused(value: float) -> None:
    actions = np.zeros((damage.ENVS, 2), np.float32)
    actions[1, 1] = value
    parts = encode_actions(0, 0, actions)
    assert refusal(lambda: decode_actions(parts, Actions(0, 2))) == "action range"


def test_last_words_keep_their_end_and_may_be_cut_within_a_character() -> None:
    assert decode_failure(encode_failure("Traceback \u2620")) == "Traceback \u2620"
    long = "\u2620" * MAX_FAILURE_BYTES + "the error"
    assert decode_failure(encode_failure(long)).endswith("\u2620the error")
    assert len(encode_failure(long)[1]) == MAX_FAILURE_BYTES
    assert decode_failure([b"", b"\xff\xfe"]) == "\ufffd\ufffd"


def decode_anything(parts: list[bytes]) -> str:
    """Decode `parts` as every kind of message, and check each result.

    Returns why the header, or the decoder for its kind, refuses them; "" if they are accepted.
    """
    outcomes = {
        "hello": attempt(lambda: check_hello(parts)),
        "step": attempt(lambda: check_step(parts)),
        "actions": attempt(lambda: check_actions(parts)),
        "numbers": attempt(lambda: check_numbers(parts)),
        "failure": attempt(lambda: check_failure(parts)),
    }
    try:
        kind = decode_header(parts[0]).kind if parts else None
    except MessageError as error:
        assert damage.header_flaw(parts[0])
        return error.reason
    assert kind is None or not damage.header_flaw(parts[0])
    return outcomes.get(kind.name.lower(), "kind") if kind is not None else "part count"


def attempt(decode: Callable[[], None]) -> str:
    try:
        decode()
    except MessageError as error:
        assert error.reason and len(error.reason) < 30, "a reason is a short key to count by"
        return error.reason
    return ""


def check_hello(parts: list[bytes]) -> None:
    hello = decode_hello(parts)
    assert not damage.hello_flaw(hello)
    values = json.loads(parts[1])
    assert {**asdict(hello), "shape": list(hello.shape)} == values


def check_step(parts: list[bytes]) -> None:
    try:
        step = decode_step(parts, damage.SHAPE, DTYPE)
    except MessageError:
        assert damage.step_flaw(parts), "refused, and nothing is wrong with it"
        raise
    assert not damage.step_flaw(parts)
    assert step.frames.tobytes() == parts[2]
    rows = list(damage.OUTCOME_LAYOUT.iter_unpack(parts[1]))
    assert [tuple(row) for row in step.outcomes.tolist()] == rows


def check_actions(parts: list[bytes]) -> None:
    try:
        actions = decode_actions(parts, Actions(damage.NUM_ACTIONS))
    except MessageError:
        assert damage.actions_flaw(parts), "refused, and nothing is wrong with them"
        raise
    assert not damage.actions_flaw(parts)
    assert actions.tolist() == [action for (action,) in struct.iter_unpack("<i", parts[1])]


def check_numbers(parts: list[bytes]) -> None:
    try:
        actions = decode_actions(parts, Actions(0, 2))
    except MessageError:
        assert damage.numbers_flaw(parts, 2), "refused, and nothing is wrong with them"
        raise
    assert not damage.numbers_flaw(parts, 2)
    assert actions.tobytes() == parts[1]


def check_failure(parts: list[bytes]) -> None:
    text = decode_failure(parts)
    assert len(parts) == 2
    assert text == parts[1].decode(errors="replace")


@pytest.mark.parametrize("seed", range(2))
def test_every_damaged_message_is_refused_or_entirely_valid(seed: int) -> None:
    reasons: Counter[str] = Counter()
    kinds = set()
    for damaged in damaged_messages(seed):
        try:
            reasons[decode_anything(damaged.parts)] += 1
        except Exception as error:
            raise AssertionError(f"{damaged.how}: {damaged.parts!r:.300}") from error
        kinds.add(damaged.how)
    assert len(kinds) > 1000
    assert set(reasons) >= {
        *("header size", "magic", "protocol", "kind", "times", "part count"),
        *("hello size", "hello json", "hello fields", "hello counts"),
        *("outcome size", "frame size", "flags", "reward", "action size", "action range"),
    }


def test_damage_is_the_same_for_the_same_seed() -> None:
    assert list(damaged_messages(3)) == list(damaged_messages(3))
    assert list(damaged_messages(3)) != list(damaged_messages(4))


@pytest.mark.parametrize("kind", ["hello", "step", "actions", "failure"])
def test_undamaged_messages_are_accepted(kind: str) -> None:
    assert decode_anything(whole_messages()[kind]) == ""


@quietly
@given(st.lists(st.binary(max_size=80), max_size=5))
def test_arbitrary_parts_are_refused_or_entirely_valid(parts: list[bytes]) -> None:
    decode_anything(parts)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@quietly
@given(st.sampled_from(sorted(asdict(damage.HELLO))), json_values)
def test_any_json_in_a_field_of_a_hello_is_refused_or_entirely_valid(name: str, value: Any) -> None:
    body = json.dumps({**asdict(damage.HELLO), name: value}).encode()
    decode_anything([whole_messages()["hello"][0], body])


@pytest.mark.parametrize("value", damage.NOT_FINITE)
@pytest.mark.parametrize("field", ["reward", "episode_return"])
def test_a_reward_that_is_not_finite_is_refused(field: str, value: float) -> None:
    step = make_step()
    step.outcomes[field][1] = value
    parts = plain(encode_step(Header(Kind.STEP, 0, damage.ENVS), step))
    assert refusal(lambda: decode_step(parts, damage.SHAPE, DTYPE)) == "reward"


@pytest.mark.parametrize("value", damage.NOT_FINITE)
def test_a_frame_of_floats_that_are_not_finite_is_refused(value: float) -> None:
    step = make_step(dtype="float32")
    step.frames[1, 0, 0] = value
    parts = plain(encode_step(Header(Kind.STEP, 0, damage.ENVS), step))
    decode = lambda: decode_step(parts, damage.SHAPE, np.dtype("float32"))  # noqa: E731
    assert refusal(decode) == "frame values"


def test_a_step_for_other_spaces_is_refused() -> None:
    parts = whole_messages()["step"]
    for shape, dtype in (((3, 3), "uint8"), ((3, 2), "float32"), ((3, 2, 2), "uint8")):
        reason = refusal(lambda s=shape, d=dtype: decode_step(parts, s, np.dtype(d)))  # type: ignore[misc]
        assert reason == "frame size"


@pytest.mark.parametrize(
    ("largest", "more"),
    [
        ({"groups": MAX_COUNT}, {"groups": MAX_COUNT + 1}),
        ({"envs_per_group": MAX_COUNT}, {"envs_per_group": MAX_COUNT + 1}),
        ({"actions": Actions(MAX_ACTIONS)}, {"actions": Actions(MAX_ACTIONS + 1)}),
        ({"shape": (MAX_PART_BYTES // damage.ENVS,)}, {"shape": (MAX_PART_BYTES // 2,)}),
        ({"shape": (5000, 5000)}, {"shape": (2**14, 2**14)}),
        ({"shape": (2**24,), "dtype": "float32"}, {"shape": (2**26,), "dtype": "float32"}),
        ({"actions": Actions(0, 2**24)}, {"actions": Actions(0, 2**26)}),
        ({"shape": (1,), "envs_per_group": MAX_COUNT}, {"shape": (4097,), "envs_per_group": 65535}),
    ],
)
def test_sizes_are_limited_by_the_bytes_and_counts_of_a_message(
    largest: dict[str, Any], more: dict[str, Any]
) -> None:
    hello = replace(damage.HELLO, **largest)
    assert decode_hello(encode_hello(hello)) == hello
    parts = encode_hello(replace(damage.HELLO, **more))
    assert refusal(lambda: decode_hello(parts)) == "hello counts"


def test_a_hello_may_be_as_long_as_the_limit_and_no_longer() -> None:
    empty = len(encode_hello(replace(damage.HELLO, token=""))[1])
    longest = replace(damage.HELLO, token="x" * (MAX_HELLO_BYTES - empty))
    assert decode_hello(encode_hello(longest)) == longest
    longer = replace(longest, token=longest.token + "x")
    assert refusal(lambda: decode_hello(encode_hello(longer))) == "hello size"


def test_last_words_that_are_too_long_are_refused() -> None:
    assert refusal(lambda: decode_failure([b"", b"x" * (MAX_FAILURE_BYTES + 1)])) == "failure size"


def test_an_error_says_its_reason_and_detail() -> None:
    with pytest.raises(MessageError, match=r"^header size: 3 bytes, not 24$"):
        decode_header(b"GA3")


@pytest.mark.parametrize(
    "header", [Header(Kind.STEP, waited_s=-1.0), Header(Kind.STEP, stepped_s=-1.0)]
)
def test_a_negative_time_is_refused(header: Header) -> None:
    assert refusal(lambda: decode_header(encode_header(header))) == "times"


def test_an_episode_of_negative_length_is_refused() -> None:
    step = make_step(finished=True)
    step.outcomes["episode_length"][0] = -1
    parts = plain(encode_step(Header(Kind.STEP, 0, damage.ENVS), step))
    assert refusal(lambda: decode_step(parts, damage.SHAPE, DTYPE)) == "episode length"


def test_last_words_with_a_lone_surrogate_can_be_sent() -> None:
    assert "lost" in decode_failure(encode_failure("lost \udc80"))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"5", b"\xff", b"[" * 10**5, b'{"a": "' + b"x" * (4 << 20) + b'"}'],
    ids=lambda body: f"{body[:4]!r} {len(body)}",
)
def test_a_note_that_is_not_a_small_json_object_is_refused(body: bytes) -> None:
    note = {"tasks": {"a": 1}}
    parts = encode_note(Kind.ORDER, note)
    assert messages.decode_header(parts[0]).kind == Kind.ORDER
    assert decode_note(parts) == note
    for wrong in ([parts[0], body], [parts[0]], [*parts, b""]):
        with pytest.raises(MessageError, match="note"):
            decode_note(wrong)
