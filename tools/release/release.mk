# SPDX-License-Identifier: Apache-2.0
#
# make release-check   build the wheels and the source archive in build/release/dist and check them;
#                      RELEASE_PYTHONS="python3.11 python3.13": only these of the machine's
#                      RELEASE_ARGS="--without-native": leave out the emulated native tests

.PHONY: release-check

RELEASE := build/release
RELEASE_PYTHONS ?=
RELEASE_ARGS ?=

release-check: $(RELEASE)/tools/.installed
	$(RELEASE)/tools/bin/python tools/release/check.py $(RELEASE) \
	    --pythons "$(RELEASE_PYTHONS)" $(RELEASE_ARGS)

# Apart from .venv: the versions of development stay what they are.
$(RELEASE)/tools/.installed: tools/release/requirements.lock | $(STAMPS)/packages-required
	@rm -rf $(@D)
	@"$(PYTHON)" -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	    -r $<
	@touch $@
