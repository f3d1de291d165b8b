# SPDX-License-Identifier: Apache-2.0
"""Kernels written to provoke one limiter each, and the script that sees whether the diagnosis names it."""
