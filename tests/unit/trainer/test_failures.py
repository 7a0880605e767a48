"""The cause of a failure, from how a rank ended and what it printed last."""

import pytest

from drivetrain.pod.failures import Memory, explain
from drivetrain_schemas.pods import FailureKind, RankExit

RAISED = """Traceback (most recent call last):
  File "/code/train.py", line 9, in <module>
    train()
  File "/code/train.py", line 5, in train
    raise ValueError("the loss is nan")
"""
CHAINED = (
    RAISED
    + """KeyError: 'lr'

The above exception was the direct cause of the following exception:

"""
    + RAISED
)
LAUNCHER = """Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============
train.py FAILED
"""
CRASHED = """step 1
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3/ctypes/__init__.py", line 517 in string_at
  File "/code/train.py", line 3 in <module>
"""
KINDS = FailureKind


@pytest.mark.parametrize(
    ("output", "code", "kind", "reason"),
    [
        (RAISED + "ValueError: it is nan\n", 1, KINDS.EXCEPTION, "ValueError: it is nan"),
        (RAISED + "KeyError: 'lr'\n", 1, KINDS.EXCEPTION, "KeyError: 'lr'"),
        (RAISED + "AssertionError\n", 1, KINDS.EXCEPTION, "AssertionError"),
        (CHAINED + "ValueError: second\nat exit\n", 1, KINDS.EXCEPTION, "ValueError: second"),
        (
            RAISED + "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s): a\n",
            1,
            KINDS.EXCEPTION,
            "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): a",
        ),
        (
            "".join(f"[rank1]: {line}\n" for line in RAISED.splitlines())
            + "[rank1]: ValueError: in a rank\n"
            + LAUNCHER,
            1,
            KINDS.EXCEPTION,
            "ValueError: in a rank",
        ),
        (RAISED + "ValueError: caught, and logged\n", 4, KINDS.EXIT_CODE, "exit code 4"),
        (RAISED + "ValueError: long ago\n" + 99 * "fine\n", 1, KINDS.EXIT_CODE, "exit code 1"),
        (
            RAISED + "ModuleNotFoundError: No module named 'x'\n",
            1,
            KINDS.INVALID,
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("python: No module named x\n", 1, KINDS.INVALID, "python: No module named x"),
        (
            "python: can't open file 'x.py': [Errno 2] No such file or directory\n",
            2,
            KINDS.INVALID,
            "python: can't open file 'x.py': [Errno 2] No such file or directory",
        ),
        ("train: No such file or directory\n", 127, KINDS.INVALID, "train: No such file or"),
        ("run.sh: line 2: train: command not found\n", 127, KINDS.INVALID, "train: command not"),
        ("cat: data.csv: No such file or directory\n", 1, KINDS.EXIT_CODE, "exit code 1"),
        (
            "  File \"/code/x.py\", line 1\n    print(\nSyntaxError: '(' was never closed\n",
            1,
            KINDS.INVALID,
            "SyntaxError: '(' was never closed",
        ),
        (
            RAISED + "drivetrain.errors.InvalidHyperparameters: hyperparameters.lr: unknown\n",
            1,
            KINDS.INVALID,
            "InvalidHyperparameters: hyperparameters.lr: unknown",
        ),
        (RAISED + "drivetrain.errors.StorageError: away\n", 1, KINDS.OUTSIDE, "StorageError: away"),
        (RAISED + "ConnectionResetError: [Errno 104]\n", 1, KINDS.OUTSIDE, "ConnectionResetError"),
        (RAISED + "MemoryError\n", 1, KINDS.OUT_OF_MEMORY, "used up to 3.0 of 16.0 GiB"),
        (
            RAISED + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n",
            1,
            KINDS.OUT_OF_MEMORY,
            "Tried to allocate 20.00 GiB",
        ),
        (
            "usage: train.py [--lr LR]\ntrain.py: error: unrecognized arguments: --rate 3\n",
            2,
            KINDS.INVALID,
            "train.py: error: unrecognized arguments: --rate 3",
        ),
        (
            "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\n"
            "Error: No such option: --learning-rate\n",
            2,
            KINDS.INVALID,
            "Error: No such option: --learning-rate",
        ),
        (
            "curl: error: no answer\n",
            2,
            KINDS.EXIT_CODE,
            "after it printed: curl: error: no answer",
        ),
        (
            "epoch 1\nno data in /data: run prepare.sh\ndrivetrain: seed 0\n",
            1,
            KINDS.EXIT_CODE,
            "rank 0 ended with exit code 1 after it printed: no data in /data: run prepare.sh",
        ),
        ("cannot connect to the store\n", 3, KINDS.OUTSIDE, "exit code 3 after it printed"),
        ("", 3, KINDS.EXIT_CODE, "rank 0 ended with exit code 3"),
    ],
)
def test_the_end_of_the_output_tells_the_cause(output, code, kind, reason) -> None:
    why = explain(RankExit(rank=0, exit_code=code), output, Memory(3 * 2**30, 16 * 2**30))
    assert why.kind is kind
    assert reason in why.reason


@pytest.mark.parametrize(
    "error",
    [
        "subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGKILL: 9>.",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal "
        "SIGKILL",
    ],
)
def test_a_launcher_whose_program_was_killed_has_raised_nothing_of_its_own(error) -> None:
    why = explain(RankExit(rank=0, exit_code=1), RAISED + error + "\n", Memory(), world_size=2)
    assert (why.kind, why.reason) == (KINDS.SIGNAL, "rank 0 was killed by signal 9 (SIGKILL)")


@pytest.mark.parametrize(
    ("number", "was_killed", "kind", "reason"),
    [
        (11, False, KINDS.SIGNAL, "by signal 11 (SIGSEGV) in string_at (__init__.py:517)"),
        (9, False, KINDS.SIGNAL, "rank 0 was killed by signal 9 (SIGKILL)"),
        (9, True, KINDS.OUT_OF_MEMORY, "out of memory: it used up to 3.0 of 4.0 GiB"),
    ],
)
def test_a_signal_comes_with_its_frame_or_with_the_memory(number, was_killed, kind, reason) -> None:
    memory = Memory(3 * 2**30, 4 * 2**30, was_killed)
    why = explain(RankExit(rank=0, signal=number), CRASHED, memory)
    assert why.kind is kind
    assert why.reason.endswith(reason)


@pytest.mark.parametrize(
    ("end", "output"),
    [
        (RankExit(rank=1, signal=9), ""),
        (RankExit(rank=1, exit_code=137), ""),
        (
            RankExit(rank=1, exit_code=1),
            RAISED + "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.\n",
        ),
    ],
)
def test_a_pod_over_its_memory_is_the_reason_where_something_was_killed(end, output) -> None:
    why = explain(end, output, Memory(2**30, 4 * 2**30, was_killed=True, exceeded_bytes=3 * 2**29))
    reason = "rank 1 was killed because its pod used more than its 1.5 GiB (resources.memory_bytes)"
    assert (why.kind, why.reason) == (KINDS.OUT_OF_MEMORY, reason)


def test_a_failure_long_after_a_helper_was_killed_has_its_own_reason() -> None:
    memory = Memory(exceeded_bytes=3 * 2**29)
    why = explain(RankExit(rank=0, exit_code=1), RAISED + "ValueError: x\n", memory)
    assert (why.kind, why.reason) == (KINDS.EXCEPTION, "ValueError: x")


def test_of_several_ranks_the_one_that_failed_is_named() -> None:
    why = explain(RankExit(rank=1, exit_code=1), RAISED + "ValueError: x\n", Memory(), world_size=2)
    assert why.reason == "rank 1: ValueError: x"
