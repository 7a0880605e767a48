"""Redaction: what is hidden of a text and of a spec, and what is not."""

import pytest

from drivetrain_schemas.redaction import hidden_fields, plain, redacted, restored


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("export API_KEY=abc; python t.py", "export API_KEY=***; python t.py"),
        ("MY_TOKEN='a b' python t.py", "MY_TOKEN=*** python t.py"),
        ("t.py --api-key abc --lr 0.1", "t.py --api-key *** --lr 0.1"),
        ("t.py --token --verbose", "t.py --token --verbose"),
        ("hf_abcdefghijklmnopqrst", "***"),
        ("use AKIAABCDEFGHIJKLMNOP now", "use *** now"),
        ("https://me:abc@host/x?sig=abc&b=1", "https://host/x?sig=***&b=1"),
        ('{"token": "abc", "lr": 1', '{"token": "***", "lr": 1'),
        ('["--token", "abc"', '["--token", "***"'),
        ("task-abcdefghijklmnopqrst", "task-abcdefghijklmnopqrst"),
        ("max_tokens=5 tokenizer=gpt author=me", "max_tokens=5 tokenizer=gpt author=me"),
    ],
)
def test_a_text_keeps_all_but_its_secrets(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_spec_is_hidden_by_names_at_any_depth_and_by_its_texts() -> None:
    spec = {
        "job": {"command": ["python", "t.py", "--token", "abc"], "seed": None},
        "space": {"api_token": {"type": "choice", "values": ["a", "b"]}, "lr": {"low": 0.1}},
        "source": {"diff": "+ one\n+ password: abc\n+ two"},
    }
    assert redacted(spec) == {
        "job": {"command": ["python", "t.py", "--token", "***"], "seed": None},
        "space": {"api_token": {"type": "choice", "values": ["***"]}, "lr": {"low": 0.1}},
        "source": {"diff": "+ one\n+ password: ***\n+ two"},
    }
    assert redacted(redacted(spec)) == redacted(spec)


def test_what_was_hidden_comes_back_where_it_was_not_changed() -> None:
    source = {"command": ["t.py", "--token=a"], "environment": {"TOKEN": "a", "X": "1"}, "lr": 1}
    shown = redacted(source)
    assert restored(shown, shown, source) == source
    given = {**shown, "environment": {"TOKEN": "***", "X": "2", "NEW_TOKEN": "***"}, "lr": 2}
    found = restored(given, shown, source)
    assert found["command"] == source["command"]
    assert found["environment"] == {"TOKEN": "a", "X": "2", "NEW_TOKEN": "***"}
    assert hidden_fields(found) == ["environment.NEW_TOKEN"]
    assert hidden_fields(source) == []
