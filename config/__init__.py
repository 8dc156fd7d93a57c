# SPDX-License-Identifier: Apache-2.0
"""Configuration, channel URIs and control messages, which client and daemon share."""
