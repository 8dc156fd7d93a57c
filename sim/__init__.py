# SPDX-License-Identifier: Apache-2.0
"""The network simulator: the production core in virtual time."""
