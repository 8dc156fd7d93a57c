# SPDX-License-Identifier: Apache-2.0
"""The steps by which the conductor executes each request and event, grouped by object."""
