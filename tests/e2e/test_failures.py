"""The cause of a failure is told wherever a job is shown, and what cannot pass is not retried."""

from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

REASON = "ModuleNotFoundError: No module named 'net_of_3_layers'"


def test_the_exception_is_the_reason_everywhere(platform: StandalonePlatform) -> None:
    spec = {
        "name": "broken",
        "command": ["python", "-c", "import net_of_{depth}_layers"],
        "hyperparameters": {"depth": 3},
        "retries": {"limit": 5, "backoff_seconds": 0.1},
    }
    with platform.client() as client:
        refused = client.post("/v1/jobs", json={"spec": spec | {"hyperparameters": {}}})
        assert refused.status_code == 422
        assert "write {{depth}}" in refused.text
        job = TrainingJob(platform, client.post("/v1/jobs", json={"spec": spec}).json()["job_id"])
        state = job.wait_final()
        assert (state["state"], state["attempt"]) == ("failed", 1), job.timeline()[-5:]
        assert state["detail"] == f"{REASON} (not tried again: a retry cannot help)"
        assert [run["detail"] for run in state["runs"]] == [REASON]
        assert [event["detail"] for event in job.events("run.failed")] == [REASON]
        explained = client.get(f"/v1/jobs/{job.job_id}/explain").text
        assert REASON in explained
