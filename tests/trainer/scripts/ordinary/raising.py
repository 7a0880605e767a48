def fail() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("the loss is not finite") from error


fail()
