# SPDX-License-Identifier: Apache-2.0
"""The trusted judge: draws inputs, owns the oracle, the tolerance and the clock."""
