"""`python -m holdfast.cli` is `holdfast`."""

import sys

from holdfast.cli import main

sys.exit(main())
