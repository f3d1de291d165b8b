# SPDX-License-Identifier: Apache-2.0
"""What a file of results belongs to."""

import os
import subprocess
from pathlib import Path


def commit():
    """The commit of this tree, with a plus where files differ from it; a copy is told by the variable COMMIT."""
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
