# SPDX-License-Identifier: Apache-2.0
"""The Spark data source and sink."""
