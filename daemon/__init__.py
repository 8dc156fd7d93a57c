# SPDX-License-Identifier: Apache-2.0
"""The control plane of a media driver."""
