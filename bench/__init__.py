# SPDX-License-Identifier: Apache-2.0
"""penstock beside its peers: ``python -m bench``."""
