# SPDX-License-Identifier: Apache-2.0
"""End of one daemon and start of the next: journal, adoption, hand-over and drain."""
