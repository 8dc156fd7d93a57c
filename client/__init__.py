# SPDX-License-Identifier: Apache-2.0
"""Clients of a media driver: publications, subscriptions, the trio front end."""
