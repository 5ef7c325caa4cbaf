"""``python -m hotloop``: the same command line as the ``hotloop`` script."""

import sys

from hotloop.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
