# SPDX-License-Identifier: Apache-2.0
"""penstock: ordered, reliable message streams between hosts and processes."""
