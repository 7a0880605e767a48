"""The environment variables that a job's program finds, with what they hold: the contract of a pod
with any program. `drivetrain.pod.ranks` sets them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """`is_always`: set for every program; else only where it applies, as its text says."""

    name: str
    text: str
    is_always: bool = True


VARIABLES: tuple[Variable, ...] = (
    Variable("RANK", "this rank, from 0; like the next five not with one device", is_always=False),
    Variable("WORLD_SIZE", "the number of ranks of the run, `resources.devices`", is_always=False),
    Variable("LOCAL_RANK", "this rank within its pod, the index of its device", is_always=False),
    Variable("LOCAL_WORLD_SIZE", "the number of ranks of its pod", is_always=False),
    Variable("MASTER_ADDR", "where the ranks meet, for `env://`", is_always=False),
    Variable("MASTER_PORT", "the port for it", is_always=False),
    Variable(
        "PET_NNODES",
        "and `PET_NODE_RANK`, `PET_NPROC_PER_NODE`, `PET_MASTER_ADDR`, `PET_MASTER_PORT`: the same "
        "for a command such as `torchrun`, which sets the ranks' variables itself",
        is_always=False,
    ),
    Variable("CUDA_VISIBLE_DEVICES", "the devices of the pod; not set on a CPU", is_always=False),
    Variable("DRIVETRAIN_HP_NAME", "the value of the hyperparameter `name`, one variable for each"),
    Variable("DRIVETRAIN_JOB_SPEC", "the whole job as JSON, without its `environment`"),
    Variable(
        "DRIVETRAIN_JOB_DIRECTORY",
        "the working directory, which outlives attempts ([files](files.md))",
    ),
    Variable("DRIVETRAIN_JOB_ID", "the job's id"),
    Variable("DRIVETRAIN_RUN_ID", "the id of this attempt"),
    Variable("DRIVETRAIN_ATTEMPT", "the number of this attempt, from 1"),
    Variable("DRIVETRAIN_FENCE", "a number that is higher in each attempt of the job"),
    Variable("DRIVETRAIN_TENANT_ID", "whose job it is"),
    Variable("DRIVETRAIN_POD_ID", "the id of the pod"),
    Variable(
        "DRIVETRAIN_POD_DIRECTORY",
        "the pod's own directory: `result.json` goes there; it ends with the attempt",
    ),
    Variable("DRIVETRAIN_DEVICE_TYPE", "`cpu`, or the type of the node's devices"),
    Variable("DRIVETRAIN_CHECKPOINT_URL", "below this address the job's checkpoints are stored"),
    Variable("DRIVETRAIN_OBJECT_STORE_URL", "the object store"),
    Variable(
        "DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL",
        "the S3 service, if it is not AWS",
        is_always=False,
    ),
    Variable("DRIVETRAIN_OBJECT_STORE_ID", "the id in the store's marker file", is_always=False),
    Variable("DRIVETRAIN_INIT_METHOD", "where ranks meet in `drivetrain.run`"),
    Variable("DRIVETRAIN_CONTROL_SOCKET", "the socket of the pod's supervisor; for `drivetrain`"),
    Variable("DRIVETRAIN_POD_MARKER", "marks the pod's processes; leave it in the environment"),
    Variable("PATH", "begins with the environment's programs: `python`, `torchrun`, `drivetrain`"),
    Variable("OMP_NUM_THREADS", "`1`, unless the job sets it"),
    Variable("PYTHONUNBUFFERED", "`1`: output is shown at once"),
    Variable("PYTHONFAULTHANDLER", "`1`: a crash prints the Python stack"),
    Variable(
        "GLOO_SOCKET_IFNAME",
        "the network interface for the ranks' CPU collectives, where all are on one machine",
        is_always=False,
    ),
)
