"""`python -m edgescope`: the command line."""

import sys

from edgescope.cli.main import main

sys.exit(main())
