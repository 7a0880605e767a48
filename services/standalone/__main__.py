"""`python -m services.standalone [up|status|stop]`."""

import os
import sys

from services.standalone.options import BadOption, parse
from services.standalone.status import status, stop
from services.standalone.up import up

EXIT_USAGE = 2


def main() -> int:
    try:
        options = parse(sys.argv[1:], os.environ)
    except BadOption as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    return {"up": up, "status": status, "stop": stop}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
