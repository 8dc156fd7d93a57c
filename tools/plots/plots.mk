# SPDX-License-Identifier: Apache-2.0
#
# make docs-plots   the pictures of the guide, from runs in virtual time: the same on every machine
# make docs-grid    heat maps and failing cells of the nak grid, into the guide (3 min a seed);
#                   GRID_ARGS="--seed f2c10be9 --seeds 5"
# make docs-pressure  pressure by load on sockets, into the guide (1 min; each run differs)

.PHONY: docs-plots docs-grid docs-pressure
GRID_ARGS ?=
PLOT_PYTHON ?= $(BIN)/python

docs-plots: setup ext
	$(MAKE) --no-print-directory -C tests/native all TESTS="test_congestion test_loss_recovery"
	$(PLOT_PYTHON) tools/plots/loss.py build/native/release docs/images
	$(PLOT_PYTHON) tools/plots/simulated.py docs/images
	$(PLOT_PYTHON) tools/plots/comparison.py docs/images
	$(PLOT_PYTHON) tools/plots/policies.py docs/images

docs-grid: setup ext
	$(PLOT_PYTHON) tools/plots/grid.py docs/images docs/nak-strength.md $(GRID_ARGS)

docs-pressure: setup ext
	$(BIN)/python -m bench.pressure
	$(PLOT_PYTHON) tools/plots/pressure.py build/bench/pressure.json docs/images docs/scheduling.md
