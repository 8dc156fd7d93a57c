# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces on one bridge; needs root."""
