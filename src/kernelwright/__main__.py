# SPDX-License-Identifier: Apache-2.0
"""``python -m kernelwright`` is the command line."""

import sys

from kernelwright.cli import main

if __name__ == "__main__":
    sys.exit(main())
