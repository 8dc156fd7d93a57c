# SPDX-License-Identifier: Apache-2.0
"""Configuration of the daemon: its models, the reader of the file and the annotated file."""
