# SPDX-License-Identifier: Apache-2.0
"""Configuration of the daemon: the models of its keys, the parser of the file, and the text of the
annotated default file."""
