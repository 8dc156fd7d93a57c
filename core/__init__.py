# SPDX-License-Identifier: Apache-2.0
"""The data plane: the compiled C core, and the only Python modules that call it."""
