"""A message that is declared as a class is on the wire what a table of the same fields is."""

from __future__ import annotations

import pytest
from google.protobuf import json_format
from tests.service.message_tables import build_messages

from mooring.service.messages import Int32, Int64, Map, Repeated, TypedMessage, UInt32, UInt64, at

SCALARS = {"text": "ä", "data": b"\0", "flag": True, "share": 0.5, "i": -1, "j": -(2**40), "u": 7, "v": 2**60}


class ScalarsMessage(TypedMessage, package="declared"):
    text: str = at(1)
    data: bytes = at(2)
    flag: bool = at(3)
    share: float = at(4)
    i: Int32 = at(5)
    j: Int64 = at(6)
    u: UInt32 = at(7)
    v: UInt64 = at(900)


class NestedMessage(TypedMessage, package="declared"):
    one: ScalarsMessage = at(1)
    many: Repeated[ScalarsMessage] = at(2)
    words: Repeated[str] = at(3)
    labels: Map[str, str] = at(4)
    by_name: Map[str, ScalarsMessage] = at(5)


TABLES = build_messages(
    "tables",
    {
        "Scalars": "1 text string\n2 data bytes\n3 flag bool\n4 share double\n5 i int32\n6 j int64\n7 u uint32\n"
        "900 v uint64",
        "Nested": "1 one Scalars\n2 many repeated Scalars\n3 words repeated string\n4 labels map string string\n"
        "5 by_name map string Scalars",
    },
)


def test_declared_and_tabled_messages_are_the_same_on_the_wire() -> None:
    one = ScalarsMessage(**SCALARS)  # type: ignore[arg-type]
    message = NestedMessage(one=one, many=[one, ScalarsMessage()], words=["a", "b"], labels={"k": "v"})
    message.by_name["x"].text = "y"
    again = TABLES["Nested"].FromString(message.SerializeToString())
    assert json_format.MessageToDict(again) == json_format.MessageToDict(message)
    assert again.SerializeToString() == message.SerializeToString()
    assert (message.many[0].j, message.by_name["x"].text, dict(message.labels)) == (-(2**40), "y", {"k": "v"})


def test_what_is_not_set_is_absent() -> None:
    message = NestedMessage.FromString(b"")
    assert (message.HasField("one"), message.one.text, list(message.many)) == (False, "", [])
    assert message.SerializeToString() == b""


def test_a_field_of_a_message_that_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="field one: no message UnheardMessage is declared before this one"):

        class WrongMessage(TypedMessage, package="declared"):
            one: UnheardMessage = at(1)  # type: ignore[name-defined] # noqa: F821
