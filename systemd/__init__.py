# SPDX-License-Identifier: Apache-2.0
"""Files of the service, which ``penstock service install`` puts in place."""
