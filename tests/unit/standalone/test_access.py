"""The table of access agrees with what the services do, what the contracts say, and the READMEs."""

import importlib
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from drivetrain_schemas.access import ACCESS, CLIENT, POD
from drivetrain_schemas.registry import all_kinds
from drivetrain_schemas.topics import SERVICES, TOPICS, WINDOWS, parked_topic
from services.runtime.access.acls import (
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    changes,
    is_of_platform,
    wanted_acls,
)
from services.runtime.service import Service, event_topics
from services.runtime.settings import load
from services.standalone.parts import PARTS
from tests.unit.standalone.test_parts import make_plan

ROOT = Path(__file__).parents[3]
CLASSES = list(all_kinds().values())
NAMES = {topic.name for topic in TOPICS}


def built(name: str, tmp_path: Path) -> Service:
    """The service as standalone starts it."""
    wiring = importlib.import_module(f"services.{name}.wiring")
    settings = importlib.import_module(f"services.{name}.settings")
    settings_class = getattr(settings, f"{name.capitalize()}Settings")
    part = next(part for part in PARTS if part.name == name)
    plan = make_plan(tmp_path)
    secrets = {
        name: name.ljust(32, "-")
        for name in ("api_token", "cookie_secret", "read_token", "run_token_key")
    }
    plan = replace(plan, credentials=replace(plan.credentials, **secrets))
    environment = part.build(plan).launch.environment
    service: Service = wiring.build(load(settings_class, environment))
    return service


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_may_read_what_its_handlers_take_and_nothing_else(
    name: str, tmp_path: Path
) -> None:
    service = built(name, tmp_path)
    taken = {*event_topics(service), *service.streams} - {parked_topic(name)}
    assert taken == set(ACCESS[name].reads) - {parked_topic(name)}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_reads_every_topic_from_which_it_parks(name: str, tmp_path: Path) -> None:
    """Else what cannot be read there is neither parked nor counted."""
    service = built(name, tmp_path)
    parks = {topic for topic in TOPICS if topic.parked_by == name}
    assert parks <= {*event_topics(service), *service.streams}


@pytest.mark.parametrize("name", [*SERVICES, POD])
def test_an_event_may_be_written_by_its_producer_only(name: str) -> None:
    produced = {each.kind.topic for each in CLASSES if each.kind.producer == name}
    commands = {topic for topic in TOPICS if topic.name.startswith("commands.")}
    own = {parked_topic(name)} if name in SERVICES else set()
    if name == "metrics":
        own |= {WINDOWS}  # the changelog of its windows process, no events
    if name == "gateway":
        # It puts parked records back on the topics that they came from.
        assert (
            set(ACCESS[name].writes)
            == {topic for topic in TOPICS if not topic.name.startswith("parked.")} | own
        )
    else:
        assert set(ACCESS[name].writes) - commands == produced | own


def test_pods_read_nothing_and_clients_write_commands_only() -> None:
    assert ACCESS[POD].reads == ()
    assert {topic.name for topic in ACCESS[POD].writes} == {"metrics", "logs", "reports"}
    assert {topic.name.split(".")[0] for topic in ACCESS[CLIENT].writes} == {"commands"}
    assert {topic.name.split(".")[0] for topic in ACCESS[CLIENT].reads} == {"events"}


@pytest.mark.parametrize("name", SERVICES)
def test_the_readme_names_the_topics_that_a_service_may_use(name: str) -> None:
    """But for its own parked topic, which every service has."""
    text = (ROOT / f"services/{name}/README.md").read_text()
    row = re.search(r"^Topics: reads ([^;]*); writes ([^;]*?)\.$", text, re.MULTILINE)
    assert row, f"services/{name}/README.md has no line 'Topics: reads ...; writes ...'"
    for said, topics in zip(row.groups(), (ACCESS[name].reads, ACCESS[name].writes), strict=True):
        patterns = re.findall(r"`([a-z.*]+)`", said)
        named = {topic for topic in NAMES if any(fnmatchcase(topic, each) for each in patterns)}
        own = {parked_topic(name).name}
        assert {topic.name for topic in topics} - own == named - own


def test_every_entry_carries_the_prefix_of_its_platform() -> None:
    wide = [acl for acl in wanted_acls("team.") if not acl.name.startswith("team.")]
    assert {(acl.user, acl.resource, acl.name) for acl in wide} == {
        (CLIENT, Resource.GROUP, "*"),
        (CLIENT, Resource.TRANSACTIONAL_ID, "*"),
    }


def test_a_client_may_take_no_groups_of_services() -> None:
    denied = {acl.name for acl in wanted_acls("d.") if acl.permission is Permission.DENY}
    assert denied == {f"d.{name}" for name in SERVICES}


def test_what_is_there_already_is_left_and_what_is_too_much_is_deleted() -> None:
    wanted = wanted_acls("d.")
    extra = Acl(POD, Resource.TOPIC, "d.events.jobs", Pattern.LITERAL, Operation.WRITE)
    missing = min(wanted)
    found = changes((wanted - {missing}) | {extra}, wanted)
    assert found.missing == (missing,)
    assert found.surplus == (extra,)
    assert changes(wanted, wanted) == changes((), ())


def test_on_a_shared_broker_only_entries_of_the_platform_are_deleted() -> None:
    wanted = wanted_acls("d.")
    own = Acl(POD, Resource.TOPIC, "d.events.jobs", Pattern.LITERAL, Operation.WRITE)
    of_another = replace(own, user="their-application")
    elsewhere = replace(own, name="their.topic")
    present = wanted | {own, of_another, elsewhere}
    assert changes(present, wanted, is_of_platform("d.", wanted)).surplus == (own,)


def test_users_known_by_certificates_have_another_form() -> None:
    assert {acl.user for acl in wanted_acls("d.", "CN={user}")} == {f"CN={it}" for it in ACCESS}
