# SPDX-License-Identifier: Apache-2.0
"""What a file of results belongs to."""

import os
import subprocess
from pathlib import Path


def commit():
    """The commit of this tree, with a plus where files differ from it; a copy without history is told by COMMIT."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    said = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return said or os.environ.get("COMMIT", "unknown")
