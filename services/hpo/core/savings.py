"""What stopping trials early has saved, against running all of them to their end. Pure."""

from collections.abc import Iterable

from services.hpo.core.trials import Trial, TrialState


def saved_per_step_run(trials: Iterable[Trial], max_steps: int) -> float:
    """Steps that stopped trials left out, for each step that any trial ran.

    A stopped trial ran to its last rung; what it ran beyond, and what failed trials ran, is not
    known and counts as nothing.
    """
    num_run = num_left_out = 0
    for trial in trials:
        if trial.state is TrialState.COMPLETED:
            num_run += max_steps
        elif trial.state is TrialState.STOPPED:
            reached = trial.measured[-1].step if trial.measured else 0
            num_run += reached
            num_left_out += max_steps - reached
    return num_left_out / num_run if num_run else 0.0
