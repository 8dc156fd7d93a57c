# SPDX-License-Identifier: Apache-2.0
"""Configuration, channel URIs and control messages: what client and daemon agree on."""
