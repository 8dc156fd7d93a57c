#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Lines of the C core that the given number of generated scenarios reach, by file (gcov).
set -eu -o pipefail

seeds=${1:-1000}
root=$(cd "$(dirname "$0")/.." && pwd)
python=$root/.venv/bin/python
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

mkdir -p "$place/package/penstock" "$place/objects"
for path in "$root"/penstock/*; do
    case $path in
    *_core_sim*.so) ;;
    *) ln -s "$path" "$place/package/penstock/" ;;
    esac
done
for name in client config core daemon sim spark_bridge; do
    ln -s "$root/$name" "$place/package/penstock/$name"
done
(cd "$root/core" && "$python" -c \
    "from build_core import sim_ffibuilder as b; b.emit_c_code('$place/_core_sim.c')" >/dev/null)
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
flags=(-std=gnu11 -UNDEBUG -O1 -g --coverage -fPIC -w "-I$include")
for folder in "$root"/core/include "$root"/core/src/* "$root"/sim/native/*; do
    flags+=("-I$folder")
done
for source in "$root"/core/src/*/*.c "$root"/sim/native/*/*.c "$place/_core_sim.c"; do
    extra=()
    [ "$source" != "$place/_core_sim.c" ] || extra=(-DPy_LIMITED_API=0x030b0000)
    (cd "$place/objects" && "${CC:-cc}" "${flags[@]}" "${extra[@]}" -c "$source")
done
"${CC:-cc}" -shared --coverage -o "$place/package/penstock/_core_sim.abi3.so" "$place"/objects/*.o \
    -pthread -lm
PYTHONSAFEPATH=1 PYTHONPATH="$place/package" "$python" -m penstock sim fuzz --seeds "$seeds" \
    --keep-going --shrunk "$place/shrunk.toml" --histogram || true
cd "$place/objects"
# Folders without the system's own: files, sockets and threads have tests of their own.
gcov -n -s "$root/core/src" -r ./*.gcda 2>/dev/null | awk '
    /^File/ { name = $2; gsub(/\x27/, "", name) }
    /^Lines executed/ && name ~ /^(wire|protocol|agent|sender|receiver|client)\// {
        split($2, part, ":"); sub(/%/, "", part[2])
        printf "%-28s %6.1f %% of %d\n", name, part[2], $4
        lines += $4; hit += $4 * part[2] / 100; name = ""
    }
    END { if (lines) printf "%-28s %6.1f %% of %d\n", "all", 100 * hit / lines, lines }'
