"""``python -m arviz_swiss`` is the command line."""

import sys

from arviz_swiss.cli import main

if __name__ == "__main__":
    sys.exit(main())
