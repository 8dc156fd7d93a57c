# SPDX-License-Identifier: Apache-2.0
#
# make docs-plots   the pictures of the guide, from runs in virtual time (needs the extra "plots")

.PHONY: docs-plots
PLOT_PYTHON ?= $(BIN)/python

docs-plots:
	$(MAKE) --no-print-directory -C tests/native all TESTS="test_congestion test_loss_recovery"
	$(PLOT_PYTHON) tools/plots/congestion.py build/native/release docs/images
