"""The picture of the panels that matter: valid SVG, with what was read."""

from xml.etree import ElementTree

from deploy.dashboards.picture import Curves, svg

SVG = "{http://www.w3.org/2000/svg}"


def test_every_panel_is_drawn_with_its_curves_to_scale() -> None:
    panels = [
        Curves("Lag <s>", "s", {"cost": [(0, 0), (10, 4)], "hpo": [(0, 2)]}),
        Curves("Parked", "short", {"value": [(0, 0), (10, 0)]}),
        Curves("Jobs that wait", "short", {}),
    ]
    root = ElementTree.fromstring(svg(panels, 0, 10))
    groups = root.findall(f"{SVG}g")
    assert [group.findtext(f"{SVG}text") for group in groups] == [it.title for it in panels]
    lines = [[it.get("points") for it in group.iter(f"{SVG}polyline")] for group in groups]
    assert lines == [["44.0,112.0 468.0,28.0", "44.0,70.0"], ["44.0,112.0 468.0,112.0"], []]
