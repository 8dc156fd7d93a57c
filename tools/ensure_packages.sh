#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Looks for the system packages that penstock's build and tests need.  As root on a Debian system it
# installs what is missing; otherwise it says plainly what is missing and which package has it.
#
#   ensure_packages.sh required   what `make setup` cannot do without (fails when it is missing)
#   ensure_packages.sh demo       what `make demo` cannot do without: the same and Java (fails)
#   ensure_packages.sh tests      what single tests need (those tests are not run without it)
set -u

level=${1:-required}
missing=""
packages=""

need() { # need NAME PACKAGE COMMAND...: NAME is what people call it
    name=$1 package=$2
    shift 2
    if ! "$@" >/dev/null 2>&1; then
        missing="$missing
  - $name (Debian: $package)"
        packages="$packages $package"
    fi
}

build_needs() {
    need "Python 3.11 or later" python3.11 "$python" -c \
        'import sys; sys.exit(sys.version_info < (3, 11))'
    need "Python's venv with ensurepip" python3.11-venv "$python" -c 'import venv, ensurepip'
    need "the headers of Python" python3.11-dev "$python" -c \
        'import os, sysconfig as s, sys
sys.exit(not os.path.exists(os.path.join(s.get_path("include"), "Python.h")))'
    need "a C compiler" gcc cc --version
    need "the headers of the C library" libc6-dev test -e /usr/include/stdio.h
    need "flock" util-linux command -v flock
}

scan() {
    missing="" packages=""
    PATH=$PATH:/usr/sbin:/sbin # where a user's own may not lead
    python=${PYTHON:-python3.11}
    case $level in
    required)
        build_needs
        ;;
    demo)
        build_needs
        need "Java 17 or later (Spark)" default-jre-headless sh -c \
            'java -version 2>&1 | grep -Eq "version \"(1[7-9]|[2-9][0-9])"'
        ;;
    tests)
        need "Java 17 or later (Spark, interoperability tests)" default-jdk-headless \
            sh -c 'javac -version 2>&1 | grep -Eq "^javac (1[7-9]|[2-9][0-9])" && command -v java'
        need "Maven (interoperability tests, benchmarks)" maven command -v mvn
        need "cargo (interoperability tests with the C driver)" cargo command -v cargo
        need "ip (cluster tests)" iproute2 command -v ip
        need "unshare, nsenter and setpriv (cluster tests, benchmarks)" util-linux \
            sh -c 'command -v unshare && command -v nsenter && command -v setpriv'
        need "mount (tests of full memory)" mount command -v mount
        need "clang with libFuzzer (C fuzz targets)" "clang libclang-rt-dev" sh -c \
            'echo "int LLVMFuzzerTestOneInput(void){return 0;}" |
             clang -w -fsanitize=fuzzer,address -x c - -o /dev/null'
        need "callgrind (instructions of a message)" valgrind command -v callgrind_annotate
        need "nats-server (programs side by side)" nats-server command -v nats-server
        need "systemd-analyze (service file tests)" systemd command -v systemd-analyze
        ;;
    *)
        echo "usage: $0 required|demo|tests" >&2
        exit 2
        ;;
    esac
}

scan
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$packages" >&2
    log=$(mktemp)
    {
        apt-get update -q && DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends $packages
    } >"$log" 2>&1 || tail -n 5 "$log" >&2
    rm -f "$log"
    scan
    [ -z "$missing" ] && exit 0
fi
echo "penstock: missing on this machine:$missing" >&2
echo "install with: apt-get install$packages" >&2
[ "$level" = tests ] && exit 0
exit 1
