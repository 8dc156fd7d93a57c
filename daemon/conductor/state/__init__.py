# SPDX-License-Identifier: Apache-2.0
"""State of the conductor: its objects, their life cycles, deadlines and journal records."""
