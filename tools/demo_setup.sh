#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what `make demo` needs into a virtual environment, and nothing else.  Tells the time of the
# downloads apart: it belongs to the network.
#
#   demo_setup.sh VENV DOWNLOADS      PYTHON in the environment: what makes the virtual environment
set -eu -o pipefail

venv=$1 downloads=$2
began=$SECONDS
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"

test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
mkdir -p "$downloads"
echo "downloading the pinned requirements of the demo (Spark: 450 MB)"
download_began=$SECONDS
$pip download --no-deps --require-hashes --requirement requirements-demo.lock --dest "$downloads"
download_s=$((SECONDS - download_began))
echo "downloaded $(du --summarize --block-size=1M "$downloads" | cut -f1) MB in $download_s s"

echo "installing them, and building penstock"
offline="--no-index --find-links $downloads --no-deps"
names=$(sed -n 's/^\([a-z0-9._-]*==[^ ]*\) .*/\1/p' requirements-demo.lock)
builders=$(echo "$names" | grep -E '^(setuptools|wheel|packaging|cffi|pycparser)==')
$pip install $offline $builders
# The compiler works while pip unpacks Spark.
$venv/bin/python setup.py --quiet build_ext --inplace >"$downloads/build.log" 2>&1 &
build=$!
failed=0
$pip install $offline --no-build-isolation --no-compile $names || failed=1
wait $build || { cat "$downloads/build.log" >&2; failed=1; }
[ $failed = 0 ] || exit 1
$pip install --no-deps --no-build-isolation --editable .
rm -rf "$downloads"
echo "ready after $((SECONDS - began - download_s)) s, and $download_s s of download"
