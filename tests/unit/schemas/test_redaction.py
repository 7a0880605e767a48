"""Redaction: what is hidden of a text and of a spec, and what is not."""

import json
import time

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
        ("t.py --hub.token \\\n abc --lr 1", "t.py --hub.token \\\n *** --lr 1"),
        ('TOKEN="a\\"b c"d python t.py', "TOKEN=*** python t.py"),
        ("def f(token: str):\n    return 1", "def f(token: ***\n    return 1"),
        ("s3://me:a/b@host/x", "s3://host/x"),
        ("https://host:8080/x/a@b", "https://host:8080/x/a@b"),
        ("a JWT eyJhbGciOiJIUzI.eyJzdWIi.abc", "a JWT ***"),
        ("unexpected token: x", "unexpected token: x"),
        ("hf_transformers_library", "hf_transformers_library"),
        ("sk-pretrained-resnet-50", "sk-pretrained-resnet-50"),
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


def test_numbers_of_tokens_are_shown_and_those_of_passwords_are_not() -> None:
    plain_ones = {
        **{"token_dropout": 0.1, "num_class_token": 4, "use_cls_token": True},
        **{"token_dim": "64", "pad_token": "<pad>", "token_pooling": "mean", "label_key": "y"},
    }
    assert redacted(plain_ones) == plain_ones
    space = {"token_dropout": {"type": "uniform", "low": 0.1, "high": 0.5}}
    assert redacted(space) == space
    command = ["t.py", "--token-dim", "64", "--token_dropout=0.1"]
    assert redacted({"command": command}) == {"command": command}
    assert redacted({"db_password": 1234, "token": "12345678"}) == {
        "db_password": "***",
        "token": "***",
    }


@pytest.mark.parametrize(
    "name", ["WANDB_KEY", "MYSQL_PWD", "PASSPHRASE", "AWS_ACCESS_KEY", "AccountKey", "api.key"]
)
def test_names_of_keys_and_passwords_hide_their_values(name: str) -> None:
    assert redacted({name: "abc"}) == {name: "***"}


def test_an_invalid_command_and_json_in_a_variable_are_hidden_as_well() -> None:
    spec = {
        "command": ["t.py", 5, "--token", "abc", 6],
        "environment": {
            "CONFIG": '{"password": {"value": "abc"}, "lr": 1}',
            "PEM": "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n",
        },
    }
    shown = redacted(spec)
    assert shown["command"] == ["t.py", 5, "--token", "***", 6]
    assert shown["environment"] == {
        "CONFIG": '{"password": {"value": "***"}, "lr": 1}',
        "PEM": "***\n",
    }


def test_a_secret_at_the_end_of_what_is_looked_at_is_not_shown_in_part() -> None:
    for secret in (" AKIAABCDEFGHIJKLMNOP", " https://me:abcdefghijklmnop@host"):
        for cut in range(1, len(secret)):
            text = "x " * 2000 + "y" * (96 - cut) + secret
            shown = plain(text)
            assert "AKIA" not in shown
            assert "me:" not in shown
            assert plain(shown) == shown


def test_many_lines_and_long_names_take_little_time() -> None:
    """Every page of a parked record looks at all of it; compared with a copy of as many bytes."""
    started = time.thread_time()
    json.loads(json.dumps([0] * 1_000_000))
    unit = time.thread_time() - started
    for text in ("\n" * 1_000_000, "-token" * 170_000, "\n".join(["-token" * 680] * 250)):
        started = time.thread_time()
        redacted(text)
        assert time.thread_time() - started < 20 * unit


def test_what_was_shown_of_a_text_is_no_value_of_it() -> None:
    spec = {"command": ["sh", "-c", "export TOKEN=abc; t.py"], "args": ["a token " * 1000]}
    assert hidden_fields(redacted(spec)) == ["command.2", "args.0"]
    assert hidden_fields({"command": ["sh", "-c", "echo '*** done ***'"]}) == []
    assert redacted("x " * 3000) == "x " * 3000, "no part of it could be a secret"
