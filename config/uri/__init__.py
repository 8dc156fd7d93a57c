# SPDX-License-Identifier: Apache-2.0
"""Channel URIs: their types, their grammar and the rules between parameters."""
