"""`python -m attnfun`: the command line."""

import sys

from attnfun.cli import main

sys.exit(main())
