"""What differs between the specs of several jobs."""

from services.gateway.core.comparison import differences


def test_hyperparameters_come_first_and_of_the_rest_only_what_differs() -> None:
    lines = differences(
        [
            {"name": "a", "hyperparameters": {"lr": 0.1, "width": 8}, "resources": {"devices": 1}},
            {"name": "b", "hyperparameters": {"lr": 0.1}, "resources": {"devices": 2}, "seed": 1},
        ]
    )
    assert [(line.name, line.values, line.differs) for line in lines] == [
        ("width", ("8", "none"), True),
        ("lr", ("0.1", "0.1"), False),
        ("resources.devices", ("1", "2"), True),
        ("seed", ("none", "1"), True),
    ]
