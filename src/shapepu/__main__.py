"""``python -m shapepu``, for where the command is not on the path."""

import sys

from shapepu.cli import main

if __name__ == "__main__":
    sys.exit(main())
