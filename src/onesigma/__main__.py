"""`python -m onesigma` is the command line."""

from __future__ import annotations

import sys

from onesigma.cli import main

sys.exit(main())
