"""`drivetrain job export`: jobs in the forms of other tools."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drivetrain.cli import completing, session
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.files import OverwriteOption
from drivetrain.cli.names import find_job, find_study
from drivetrain.cli.output import Item, write_line, write_note
from drivetrain.cli.session import JOB_HELP, STUDY_HELP, example, segment

if TYPE_CHECKING:
    from drivetrain.cli.exchange.tables import Row
    from drivetrain.cli.gateway import Gateway


def export(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completing.jobs)
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            "--study",
            metavar="STUDY",
            help=f"All trials of it. {STUDY_HELP}",
            autocompletion=completing.studies,
        ),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option("--mlflow", metavar="URL", help="Runs of an MLflow server, with files."),
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", help="MLflow's experiment: the project or study without it."),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option("--tensorboard", metavar="DIR", help="Event files, a directory per job."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="All samples, a row each.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="The same as Parquet.")
    ] = None,
    openlineage: Annotated[
        str | None,
        typer.Option(
            "--openlineage", metavar="FILE|URL", help="OpenLineage events of each run, a line each."
        ),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write a job, or all trials of a study, in the forms of other tools.

    An export to MLflow that is repeated adds only what is missing.
    """
    wanted = (mlflow, tensorboard, csv, parquet, openlineage)
    if all(one is None for one in wanted):
        fix = "give --mlflow, --tensorboard, --csv, --parquet or --openlineage"
        raise InvalidInput("it is not said where to export to", fix=fix)
    if (job is None) == (study is None):
        raise InvalidInput("neither or both of JOB and --study are given", fix="give one of them")
    with session.connect() as gateway:
        jobs = _Jobs(gateway, job, study)
        if mlflow is not None:
            _to_mlflow(jobs, mlflow, experiment)
        if tensorboard is not None:
            _to_tensorboard(jobs, tensorboard, overwrite)
        if csv is not None:
            _to_table(jobs, csv, overwrite)
        if parquet is not None:
            _to_table(jobs, parquet, overwrite, is_parquet=True)
        if openlineage is not None:
            _to_openlineage(jobs, openlineage, overwrite)


def register(app: typer.Typer) -> None:
    """Add this verb to `drivetrain job`."""
    app.command(epilog=example("drivetrain job export digits --mlflow http://localhost:5000"))(
        export
    )


class _Jobs:
    """What is exported: one job, or those of a study."""

    def __init__(self, gateway: "Gateway", job: str | None, study: str | None) -> None:
        self.gateway = gateway
        self.study: Item | None = None
        self._job_ids: list[str] = []
        if study is not None:
            path = f"/v1/studies/{segment(find_study(gateway, study))}"
            self.study = gateway.get(path, {"max_trials": 1})
            found = gateway.pages(f"{path}/trials", "trials")
            self._job_ids = [one["job_id"] for one in found if one.get("job_id")]
        elif job is not None:
            self._job_ids = [find_job(gateway, job)]

    def views(self) -> Iterator[Item]:
        """Each as it is now."""
        for job_id in self._job_ids:
            yield self.gateway.get(f"/v1/jobs/{segment(job_id)}")

    def study_of(self, job: Item) -> Item | None:
        """The study whose trial the job is."""
        study_id = job.get("study_id")
        if study_id is None or (self.study and self.study["study_id"] == study_id):
            return self.study
        found: Item = self.gateway.get(f"/v1/studies/{segment(study_id)}", {"max_trials": 1})
        return found

    def rows(self) -> Iterator["Row"]:
        from drivetrain.cli.exchange.history import History

        for job in self.views():
            history = History(self.gateway, job)
            for sample in history.samples(history.series()):
                yield job["job_id"], sample


def _to_mlflow(jobs: _Jobs, url: str, experiment: str | None) -> None:
    from drivetrain.cli.exchange import facts, mlflow
    from drivetrain.cli.exchange.mlflow_server import MlflowServer

    server = MlflowServer(url, os.environ)
    try:
        for job in jobs.views():
            study = jobs.study_of(job)
            chosen = experiment or facts.project(job) or (study or {}).get("name")
            exported = mlflow.export_job(server, jobs.gateway, job, chosen or "drivetrain")
            write_line(exported.address)
            write_note(f"added: {exported.num_points} points, {exported.num_files} files")
    finally:
        server.close()


def _to_tensorboard(jobs: _Jobs, root: Path, overwrite: bool) -> None:
    from drivetrain.cli.exchange import facts, tensorboard
    from drivetrain.cli.exchange.history import History
    from drivetrain.cli.exchange.writing import whole_directory

    for job in jobs.views():
        target = root / facts.label(job)
        history = History(jobs.gateway, job)
        with whole_directory(target, overwrite) as partial:
            file = partial / tensorboard.file_name(job)
            num = tensorboard.write_events(file, job, history.samples(history.series()))
        write_line(f"{num} samples in {target}")


def _to_table(jobs: _Jobs, target: Path, overwrite: bool, *, is_parquet: bool = False) -> None:
    from drivetrain.cli.exchange import tables
    from drivetrain.cli.exchange.writing import whole_file

    if is_parquet:
        tables.need_pyarrow()
    with whole_file(target, overwrite) as partial:
        write = tables.write_parquet if is_parquet else tables.write_csv
        num = write(partial, jobs.rows())
    write_line(f"{num} samples in {target}")


def _to_openlineage(jobs: _Jobs, target: str, overwrite: bool) -> None:
    from drivetrain.cli.exchange import lineage
    from drivetrain.cli.exchange.writing import whole_file

    def events() -> Iterator[lineage.Event]:
        for job in jobs.views():
            path = f"/v1/jobs/{segment(job['job_id'])}/checkpoints"
            checkpoints = jobs.gateway.get(path)["checkpoints"]
            yield from lineage.events_of(job, jobs.study_of(job), checkpoints)

    if target.startswith(("http://", "https://")):
        num = lineage.send(target, os.environ, events())
    else:
        with whole_file(Path(target), overwrite) as partial:
            num = lineage.write(partial, events())
    write_line(f"{num} events in {target}")
