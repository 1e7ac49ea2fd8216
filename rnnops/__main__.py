"""`python -m rnnops` is the command `rnnops`."""

import sys

from rnnops.cli.main import main

sys.exit(main())
