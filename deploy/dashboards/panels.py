"""What all dashboards are made of: panels with a unit, a description and queries, in rows.

A query is (PromQL, legend). `$__rate_interval` is Grafana's; the other variables are a dashboard's.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableOption

Query = tuple[str, str]
Panel = timeseries.Panel | stat.Panel

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "drivetrain"
HEIGHT = 8
WIDTH = 8  # of 24 columns


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice among the values of a label, or a text where there is no query."""

    name: str
    label: str
    query: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """From a panel to a page of the platform; `path` may hold variables."""

    title: str
    path: str


GATEWAY = Variable("gateway", "Address of the pages", default="http://127.0.0.1:8480")
POOL = Variable("pool", "Pool", "label_values(drivetrain_scheduler_devices, pool)")
SERVICE = Variable("service", "Service", 'label_values(up{job="drivetrain"}, service)')


def line(
    title: str, description: str, unit: str, *queries: Query, link: Link | None = None,
    stacked: bool = False,
) -> Panel:  # fmt: skip
    """A chart over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(PROMETHEUS)
        .height(HEIGHT)
        .span(WIDTH)
        .min(0)
        .fill_opacity(20 if stacked else 0)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for target in _targets(queries):
        panel = panel.with_target(target)
    return panel.links([_link(link)]) if link else panel


def number(
    title: str, description: str, unit: str, expression: str, *, link: Link | None = None
) -> Panel:
    """The value now."""
    panel = (
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(PROMETHEUS)
        .height(HEIGHT)
        .span(WIDTH)
    )
    for target in _targets([(expression, "")]):
        panel = panel.with_target(target)
    return panel.links([_link(link)]) if link else panel


def board(
    name: str,
    description: str,
    variables: Sequence[Variable],
    rows: Mapping[str, Sequence[Panel]],
) -> dashboard.Dashboard:
    """A dashboard; `name` is its file and the end of its address."""
    made = (
        dashboard.Dashboard(f"Drivetrain: {name}")
        .uid(f"drivetrain-{name}")
        .description(description)
        .tags([TAG])
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("browser")
        .readonly()
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        .link(_others())
    )
    for variable in variables:
        made = made.with_variable(_variable(variable))
    ids = itertools.count(1)
    for title, panels in rows.items():
        made = made.with_row(dashboard.Row(title).id(next(ids)))
        for panel in panels:
            made = made.with_panel(panel.id(next(ids)))
    return made


def rate(metric: str, labels: str = "", selector: str = "") -> str:
    """The rate of a counter, summed over all but `labels`."""
    summed = f"sum by ({labels}) " if labels else "sum"
    inner = f"rate({metric}{{{selector}}}[$__rate_interval])".replace("{}", "")
    return f"{summed}({inner})"


def quantile(share: float, metric: str, labels: str = "", selector: str = "") -> str:
    """A quantile of a histogram, by `labels`."""
    by = f"le, {labels}" if labels else "le"
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', by, selector)})"


def _targets(queries: Sequence[Query]) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery()
        .expr(expression)
        .legend_format(legend or "__auto")
        .ref_id(chr(65 + i))
        for i, (expression, legend) in enumerate(queries)
    ]


def _link(link: Link) -> dashboard.DashboardLink:
    return dashboard.DashboardLink(link.title).url(f"${{gateway}}{link.path}").target_blank(True)


def _others() -> dashboard.DashboardLink:
    links = dashboard.DashboardLink("Other dashboards").tags([TAG]).as_dropdown(True)
    return links.keep_time(True)


def _variable(variable: Variable) -> dashboard.QueryVariable | dashboard.TextBoxVariable:
    if not variable.query:
        text = dashboard.TextBoxVariable(variable.name).label(variable.label)
        return text.default_value(variable.default)
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(PROMETHEUS)
        .query(variable.query)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )
