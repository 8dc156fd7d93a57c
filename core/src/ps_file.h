/* SPDX-License-Identifier: Apache-2.0
 * ps_file.h: making and mapping files of a daemon directory.  Control plane.
 */
#ifndef PS_FILE_H
#define PS_FILE_H

#include <stdint.h>

/* Joins directory and name into out (PS_PATH_BYTES).  PS_E_INVALID when it does not fit. */
enum { PS_PATH_BYTES = 4096 };
int ps_file_join(char *out, const char *directory, const char *name);
/* Makes a new file of length bytes (sparse) with exactly these permission bits.  Returns the
 * descriptor, PS_E_SYSTEM. */
int ps_file_create(const char *path, int64_t length, int32_t mode);
/* Allocates the blocks of a range.  PS_E_NO_SPACE: text has bytes needed and available. */
int ps_file_reserve(int fd, const char *path, int64_t offset, int64_t length);
/* Opens and maps the whole file; length must be at least `least`.  PS_E_SYSTEM, PS_E_CORRUPT. */
int ps_file_map(const char *path, int32_t read_only, int64_t least, uint8_t **map,
                uint64_t *length);
/* ps_file_create + ps_file_reserve of all + mapping; the file is removed on failure. */
int ps_file_make(const char *path, int64_t length, int32_t mode, uint8_t **map);
void ps_file_unmap(uint8_t *map, uint64_t length);

#endif
