import pytest

from services.checkpoints.core.location import Location, directory_of, locate, mentioned

JOB = "job_" + "a" * 26
PREFIX = f"checkpoints/default/{JOB}/"
NAME = "f000000000002-s000000000150-00010abc"


def test_a_manifest_of_the_job_is_located() -> None:
    assert locate("default", JOB, f"{PREFIX}{NAME}/manifest.json") == Location(
        manifest_key=f"{PREFIX}{NAME}/manifest.json",
        directory=f"{PREFIX}{NAME}/",
        fence=2,
        step=150,
    )


@pytest.mark.parametrize(
    "key",
    [
        "",
        "manifest.json",
        f"{PREFIX}{NAME}",
        f"{PREFIX}{NAME}/rank-0.json",
        f"{PREFIX}{NAME}/../{NAME}/manifest.json",
        f"{PREFIX}../{JOB}/{NAME}/manifest.json",
        f"{PREFIX}{NAME}/manifest.json/manifest.json",
        f"{PREFIX}{NAME}/manifest.json\n",
        f"{PREFIX}x{NAME}/manifest.json",
        f"{PREFIX}{NAME.upper()}/manifest.json",
        f"checkpoints/other/{JOB}/{NAME}/manifest.json",
        f"checkpoints/default/job_{'b' * 26}/{NAME}/manifest.json",
        f"/{PREFIX}{NAME}/manifest.json",
        f"{NAME}/manifest.json",
    ],
)
def test_no_other_key_is(key: str) -> None:
    assert locate("default", JOB, key) is None


@pytest.mark.parametrize("name", ["manifest.json", "rank-0.safetensors", "", "a/b"])
def test_a_file_belongs_to_the_checkpoint_in_whose_directory_it_is(name: str) -> None:
    found = directory_of("default", JOB, f"{PREFIX}{NAME}/{name}")
    assert found == locate("default", JOB, f"{PREFIX}{NAME}/manifest.json")


@pytest.mark.parametrize(
    "key",
    [
        f"{PREFIX}{NAME}",
        f"{NAME}/manifest.json",
        f"{PREFIX}files/newest.json",
        f"{PREFIX}x{NAME}/manifest.json",
        f"checkpoints/other/{JOB}/{NAME}/manifest.json",
    ],
)
def test_what_is_in_no_checkpoints_directory_belongs_to_none(key: str) -> None:
    assert directory_of("default", JOB, key) is None


@pytest.mark.parametrize(
    "text",
    [
        NAME,
        f"{NAME}: size_differs rank-0.safetensors",
        f"{PREFIX}{NAME}/manifest.json",
        f"checkpoints/other/{JOB}/{NAME}/manifest.json",
    ],
)
def test_what_a_pod_mentions_is_sought_under_its_own_job(text: str) -> None:
    found = mentioned("default", JOB, text)
    assert found is not None
    assert found.manifest_key == f"{PREFIX}{NAME}/manifest.json"


def test_words_that_name_no_checkpoint_lead_nowhere() -> None:
    assert mentioned("default", JOB, "../../etc/passwd") is None
