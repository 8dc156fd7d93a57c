# SPDX-License-Identifier: Apache-2.0
#
# make docs-plots   the pictures of the guide, from runs in virtual time: the same on every machine

.PHONY: docs-plots
PLOT_PYTHON ?= $(BIN)/python

docs-plots: setup ext
	$(MAKE) --no-print-directory -C tests/native all TESTS="test_congestion test_loss_recovery"
	$(PLOT_PYTHON) tools/plots/loss.py build/native/release docs/images
	$(PLOT_PYTHON) tools/plots/simulated.py docs/images
	$(PLOT_PYTHON) tools/plots/comparison.py docs/images
