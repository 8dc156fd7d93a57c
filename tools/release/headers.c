/* SPDX-License-Identifier: Apache-2.0
 *
 * headers.c: compiled for each target before its wheel. The headers come from the Python of the
 * build machine, whose pyconfig.h states sizes of that machine. Each size that the limited API can
 * see must be the target's. */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <time.h>

#define SAME(size, type) _Static_assert((size) == sizeof(type), "pyconfig.h: " #size)

SAME(SIZEOF_SHORT, short);
SAME(SIZEOF_INT, int);
SAME(SIZEOF_LONG, long);
SAME(SIZEOF_LONG_LONG, long long);
SAME(SIZEOF_VOID_P, void *);
SAME(SIZEOF_SIZE_T, size_t);
SAME(SIZEOF_FLOAT, float);
SAME(SIZEOF_DOUBLE, double);
SAME(SIZEOF_WCHAR_T, wchar_t);
SAME(SIZEOF_TIME_T, time_t);
SAME(SIZEOF_PID_T, pid_t);
SAME(SIZEOF_OFF_T, off_t);
SAME(SIZEOF__BOOL, _Bool);
_Static_assert(sizeof(Py_ssize_t) == sizeof(void *), "Py_ssize_t is not as long as a pointer");
#ifdef WORDS_BIGENDIAN
#error "pyconfig.h: big-endian"
#endif
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the target is not little-endian");
