"""Of hundreds of metrics a line shows those that matter, and how many more there are."""

from services.gateway.core.shown_metrics import Few, few

MANY = {f"layer_{n}/norm": float(n) for n in range(250)} | {
    "accuracy": 0.9,
    "lossless": 1.0,
    "train_loss": 0.2,
    "loss": 0.1,
}


def test_the_judged_metric_comes_first_then_losses() -> None:
    assert few(MANY, "layer_7/norm") == Few(
        (("layer_7/norm", 7.0), ("loss", 0.1), ("train_loss", 0.2)), 251
    )


def test_without_a_judged_metric_groups_come_last() -> None:
    assert few(MANY, None).shown == (("loss", 0.1), ("train_loss", 0.2), ("accuracy", 0.9))
    assert few({"b/x": 1.0, "a": 2.0}, "missing") == Few((("a", 2.0), ("b/x", 1.0)), 0)
    assert few({}, None) == Few((), 0)


def test_metrics_are_ordered_by_what_they_are_and_then_by_name() -> None:
    names = ("a/loss", "z", "loss", "x/y", "val_loss", "b")
    for judged, order in ((None, "loss a/loss val_loss"), ("z", "z loss a/loss")):
        found = few(dict.fromkeys(names, 1.0), judged)
        assert ([name for name, _ in found.shown], found.num_more) == (order.split(), 3)
    assert [name for name, _ in few({"x/y": 1.0, "b": 1.0, "a": 1.0}, None).shown] == [
        "a",
        "b",
        "x/y",
    ]
