# SPDX-License-Identifier: Apache-2.0
"""The end of one daemon and the start of the next one: the journal, adoption, hand-over and
drain."""
