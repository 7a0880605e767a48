"""The environment of a rank, and which commands a warm process can run itself."""

import sys
from pathlib import Path

import pytest

from drivetrain.pod.interpreter import runs_in_process
from drivetrain.pod.ranks import rank_environment
from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import KafkaAccess, PodSpec
from drivetrain_schemas.variables import VARIABLES

JOB = job_id_for("default", "r1")


def pod_spec(**changes) -> PodSpec:
    facts = {
        "pod_id": pod_id_for(JOB, 1, 0),
        "tenant_id": "default",
        "job_id": JOB,
        "run_id": run_id_for(JOB, 1),
        "attempt": 1,
        "fence": 1,
        "node_id": "node-b",
        "pod_index": 0,
        "num_pods": 1,
        "first_rank": 0,
        "num_ranks": 2,
        "world_size": 2,
        "device_type": "nvidia-h200",
        "job": JobSpec(name="digits", command=("true",)),
        "kafka": KafkaAccess(bootstrap_servers="nowhere:1"),
        "object_store_url": "file:///objects",
        "rendezvous_file": "/rendezvous",
        "master_port": 29500,
        "devices": (2, 3),
    }
    return PodSpec.model_validate(facts | changes)


@pytest.mark.parametrize(
    ("shown_to_the_platform", "want"),
    [
        pytest.param(None, "2,3", id="all"),
        pytest.param("4,5,6,7", "6,7", id="a part of them"),
    ],
)
def test_a_pod_sees_the_devices_that_it_was_granted_and_no_others(
    monkeypatch: pytest.MonkeyPatch, shown_to_the_platform: str | None, want: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown_to_the_platform is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown_to_the_platform)
    for rank in (0, 1):
        variables = rank_environment(pod_spec(), rank, Path("/pods/job/1/pod"))
        assert variables["CUDA_VISIBLE_DEVICES"] == want
        assert variables["LOCAL_RANK"] == str(rank)


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_variables_of_a_rank_are_those_of_the_contract(is_whole: bool) -> None:
    """docs/guides/environment.md is generated from the contract: add a new variable to it."""
    job = JobSpec(name="digits", command=("true",), hyperparameters={"name": 1})
    more = {"object_store_endpoint_url": "http://s3", "object_store_id": "store"}
    elsewhere = {"device_type": "cpu", "rendezvous_file": None, "rendezvous_address": "pod-0.run"}
    elsewhere |= {"num_ranks": 1, "world_size": 1}
    spec = pod_spec(job=job, **more) if is_whole else pod_spec(job=job, **elsewhere)
    found = rank_environment(spec, 0, Path("/pods/job/1/pod"))
    want = {one.name for one in VARIABLES if is_whole or one.is_always}
    assert set(found) == want - {"PET_NNODES"}


def test_a_launcher_of_ranks_is_told_its_place_and_is_no_rank() -> None:
    job = JobSpec(name="digits", command=("torchrun", "/train.py"))
    spec = pod_spec(job=job, pod_index=1, num_pods=2, first_rank=3, num_ranks=3, world_size=6)
    found = rank_environment(spec, 0, Path("/pods/job/1/pod"))
    place = [found[f"PET_{name}"] for name in ("NNODES", "NODE_RANK", "NPROC_PER_NODE")]
    assert place == ["2", "1", "3"]
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"} & set(found)


@pytest.mark.parametrize(
    ("file", "address", "want"),
    [
        (
            "/pods/rendezvous",
            "127.0.0.1",
            ("file:///pods/rendezvous", "127.0.0.1", "lo"),
        ),
        ("/pods/rendezvous", None, ("file:///pods/rendezvous", "127.0.0.1", "lo")),
        (None, "pod-0.run", ("tcp://pod-0.run:29500", "pod-0.run", None)),
        (None, None, ("tcp://127.0.0.1:29500", "127.0.0.1", "lo")),
    ],
)
def test_ranks_meet_where_the_launcher_says(file, address, want) -> None:
    spec = pod_spec(rendezvous_file=file, rendezvous_address=address)
    variables = rank_environment(spec, 0, Path("/pods/job/1/pod"))
    names = ("DRIVETRAIN_INIT_METHOD", "MASTER_ADDR", "GLOO_SOCKET_IFNAME")
    assert tuple(variables.get(name) for name in names) == want
    assert variables["MASTER_PORT"] == "29500"


def test_cpu_slots_are_not_devices() -> None:
    variables = rank_environment(pod_spec(device_type="cpu"), 0, Path("/pods/job/1/pod"))
    assert "CUDA_VISIBLE_DEVICES" not in variables


@pytest.mark.parametrize(
    ("command", "want"),
    [
        (["python", "train.py"], True),
        (["python3", "train.py", "--fast"], True),
        (["python", "-m", "package"], True),
        (["python", "."], True),
        (["python", "train"], False),
        (["python", "missing.py"], False),
        (["python"], False),
        (["python", "-m"], False),
        (["python", "-u", "train.py"], False),
        (["python", "-c", "print(1)"], False),
        (["/usr/bin/python", "train.py"], False),
        (["sh", "train.sh"], False),
    ],
)
def test_only_a_plain_script_directory_or_module(command, want, tmp_path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "train").touch()
    assert runs_in_process(command, {}, tmp_path) == want


@pytest.mark.parametrize(
    "name",
    ["PYTHONPATH", "PYTHONHASHSEED", "LD_PRELOAD", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "LC_ALL"],
)
def test_variables_read_at_a_start_need_a_new_interpreter(name, tmp_path) -> None:
    (tmp_path / "train.py").touch()
    assert not runs_in_process(["python", "train.py"], {name: "1"}, tmp_path)
    assert runs_in_process(["python", "train.py"], {"MY_OPTION": "1"}, tmp_path)


def test_programs_of_the_environment_are_found_first_unless_the_job_sets_its_path() -> None:
    place = Path("/pods/job/1/pod")
    found = rank_environment(pod_spec(), 0, place)["PATH"]
    assert found.split(":")[0] == str(Path(sys.executable).parent)
    job = JobSpec(name="digits", command=("true",), environment={"PATH": "/mine"})
    assert rank_environment(pod_spec(job=job), 0, place)["PATH"] == "/mine"
