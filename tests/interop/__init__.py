# SPDX-License-Identifier: Apache-2.0
"""Interoperability with the real Aeron media driver."""
