# SPDX-License-Identifier: Apache-2.0
"""The control protocol of clients and daemon: messages, their encoding, and CURVE keys."""
