"""`python -m plaza` is `plaza`."""

import sys

from plaza.cli import main

sys.exit(main())
