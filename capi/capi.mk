# SPDX-License-Identifier: Apache-2.0
#
# make c-library                   build/c: libpenstock, its headers and its pkg-config file
# make install-c PREFIX=/usr/local  install them

.PHONY: c-library install-c

PREFIX ?= /usr/local
C_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
C_API_FOLDERS := $(filter-out core/src/driver core/src/sender core/src/receiver core/src/agent \
    core/src/transport,$(wildcard core/src/*)) core/include
C_API_FILES := $(wildcard $(C_API_FOLDERS:%=%/*.[ch]) capi/*)

c-library: build/c/lib/libpenstock.so.0

build/c/lib/libpenstock.so.0: $(C_API_FILES)
	@mkdir -p build/c/lib/pkgconfig build/c/include/penstock
	@$(CC) -std=gnu11 -O2 -UNDEBUG -Wall -Wextra -Werror -fPIC -shared -pthread \
	    -ffunction-sections -Wl,--gc-sections -Wl,-soname,libpenstock.so.0 -Wl,-z,defs \
	    -Wl,--version-script=capi/exports.map $(C_FOLDERS:%=-I%) -Icapi \
	    $(wildcard $(C_API_FOLDERS:%=%/*.c)) capi/*.c -o $@
	@ln -sf libpenstock.so.0 build/c/lib/libpenstock.so
	@cp core/include/*.h capi/penstock_session.h build/c/include/penstock/
	@sed -e 's|@PREFIX@|$${pcfiledir}/../..|' -e 's|@VERSION@|$(C_VERSION)|' capi/penstock.pc.in \
	    >build/c/lib/pkgconfig/penstock.pc

install-c: c-library
	@install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/penstock
	@install -m 644 build/c/include/penstock/*.h $(DESTDIR)$(PREFIX)/include/penstock
	@install -m 755 build/c/lib/libpenstock.so.0 $(DESTDIR)$(PREFIX)/lib
	@ln -sf libpenstock.so.0 $(DESTDIR)$(PREFIX)/lib/libpenstock.so
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(C_VERSION)|' capi/penstock.pc.in \
	    >$(DESTDIR)$(PREFIX)/lib/pkgconfig/penstock.pc
