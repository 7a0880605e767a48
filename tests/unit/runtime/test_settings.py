"""Settings: read from the environment, refused in words, never shown with their secrets."""

import json
import sys
from pathlib import Path

import pytest

from services.runtime import logs, service, topics
from services.runtime.errors import ConfigurationError
from services.runtime.kafka_access import KafkaAccess
from services.runtime.settings import Settings, load, masked

DSN = "postgresql://drivetrain:hunter2@127.0.0.1/drivetrain"
ENOUGH = {
    "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "DRIVETRAIN_POSTGRES_DSN": DSN,
}


class CostLike(Settings):
    price_book: Path = Path("prices.yaml")
    pools: tuple[str, ...] = ()


def test_a_service_reads_its_own_fields_too() -> None:
    settings = load(CostLike, ENOUGH | {"DRIVETRAIN_PRICE_BOOK": "/p.yaml", "PATH": "/bin"})
    assert settings.price_book == Path("/p.yaml")
    assert settings.topic_prefix == "drivetrain."


def test_lists_are_written_as_json() -> None:
    assert load(CostLike, ENOUGH | {"DRIVETRAIN_POOLS": '["a", "b"]'}).pools == ("a", "b")


def test_a_misspelt_name_is_refused_with_the_right_one() -> None:
    with pytest.raises(ConfigurationError, match="did you mean DRIVETRAIN_PRICE_BOOK"):
        load(CostLike, ENOUGH | {"DRIVETRAIN_PRICEBOOK": "/p.yaml"})


def test_a_strange_name_is_refused_with_all_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"DRIVETRAIN_X1: .* DRIVETRAIN_POSTGRES_DSN"):
        load(CostLike, ENOUGH | {"DRIVETRAIN_X1": "1"})


@pytest.mark.parametrize("name", ["DRIVETRAIN_HOME", "DRIVETRAIN_URL", "DRIVETRAIN_TOKEN"])
def test_what_the_command_line_reads_is_no_mistake(name: str) -> None:
    assert load(CostLike, ENOUGH | {name: "/data"}) == load(CostLike, ENOUGH)


def test_every_problem_is_named_at_once_and_no_value_shown() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(Settings, {"DRIVETRAIN_OPS_PORT": "hunter2", "DRIVETRAIN_LOG_LEVEL": "loud"})
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "POSTGRES_DSN", "OPS_PORT", "LOG_LEVEL"):
        assert f"DRIVETRAIN_{name}: " in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_value_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text(DSN + "\n")
    settings = load(
        Settings,
        {
            "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": "k:1",
            "DRIVETRAIN_POSTGRES_DSN_FILE": str(tmp_path / "dsn"),
        },
    )
    assert settings.postgres_dsn.get_secret_value() == DSN


@pytest.mark.parametrize("is_first", [True, False])
def test_a_value_and_a_file_for_it_are_one_too_many(tmp_path: Path, is_first: bool) -> None:
    (tmp_path / "dsn").write_text("postgresql://other")
    of_file = {"DRIVETRAIN_POSTGRES_DSN_FILE": str(tmp_path / "dsn")}
    with pytest.raises(ConfigurationError, match=r"_DSN_FILE: DRIVETRAIN_POSTGRES_DSN is given"):
        load(Settings, of_file | ENOUGH if is_first else ENOUGH | of_file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DRIVETRAIN_POSTGRES_DSN_FILE: cannot read"):
        load(Settings, {"DRIVETRAIN_POSTGRES_DSN_FILE": str(tmp_path / "none")})


def test_secrets_are_masked() -> None:
    login = {"DRIVETRAIN_KAFKA_SASL_USERNAME": "u", "DRIVETRAIN_KAFKA_SASL_PASSWORD": "hunter2"}
    settings = load(Settings, ENOUGH | login)
    shown = json.dumps(masked(settings))
    assert "hunter2" not in shown
    assert "hunter2" not in repr(settings)
    assert "127.0.0.1:9092" in shown


def test_print_config_shows_the_settings_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in ENOUGH.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys, "argv", ["python -m services.cost", "--print-config"])
    service.main(CostLike, lambda settings: pytest.fail("nothing is built"))
    shown = capsys.readouterr().out
    assert json.loads(shown)["price_book"] == "prices.yaml"
    assert "hunter2" not in shown


def test_wrong_settings_end_the_process_with_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRIVETRAIN_POSTGRES_DNS", DSN)
    monkeypatch.setattr(sys, "argv", ["python -m services.cost"])
    with pytest.raises(SystemExit) as ended:
        service.main(CostLike, lambda settings: pytest.fail("nothing is built"))
    assert ended.value.code == service.EXIT_CONFIGURATION
    assert "did you mean DRIVETRAIN_POSTGRES_DSN?" in capsys.readouterr().err


def test_what_every_service_is_given_makes_topics_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = []

    async def create(access: KafkaAccess, *options: object) -> list[str]:
        given.append(access.bootstrap_servers)
        return []

    monkeypatch.setattr(logs, "configure", lambda *_: None)
    monkeypatch.setattr(topics, "create_topics", create)
    for name, text in ENOUGH.items():
        monkeypatch.setenv(name, text)
    assert topics.main() == 0
    monkeypatch.delenv("DRIVETRAIN_POSTGRES_DSN")
    assert topics.main() == 0
    assert given == ["127.0.0.1:9092"] * 2
    monkeypatch.setenv("DRIVETRAIN_KAFKA_BOOTSTRAP", "k:1")
    assert topics.main() == 2
    assert "did you mean DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS?" in capsys.readouterr().err
