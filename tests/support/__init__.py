# SPDX-License-Identifier: Apache-2.0
"""What the tests that start processes share."""
