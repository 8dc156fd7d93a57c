# SPDX-License-Identifier: Apache-2.0
"""Work of the conductor by object: each request and event, step by step."""
