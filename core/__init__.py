# SPDX-License-Identifier: Apache-2.0
"""The native data plane: the compiled core and the only Python modules that touch it."""
