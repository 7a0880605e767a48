import faulthandler


def crash() -> None:
    faulthandler._sigsegv()


crash()
