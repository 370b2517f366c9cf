"""``python -m fastgraph``: the same as the command ``fastgraph``."""

import sys

from fastgraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
