# SPDX-License-Identifier: Apache-2.0
"""Configuration of the daemon: the classes that define its keys, the parser of the file, and the
writer of the annotated default file."""
