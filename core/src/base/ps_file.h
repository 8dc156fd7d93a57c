/* SPDX-License-Identifier: Apache-2.0
 * ps_file.h: making and mapping files of a daemon directory.  Control plane.
 */
#ifndef PS_FILE_H
#define PS_FILE_H

#include <stdint.h>

/* Writes the path `directory`/`name` into the buffer `out`, which has PS_PATH_BYTES bytes.
 * PS_E_INVALID: the path is longer than PS_PATH_BYTES. */
enum { PS_PATH_BYTES = 4096 };
int ps_file_join(char *out, const char *directory, const char *name);
/* Creates a sparse file of `length` bytes with exactly the permission bits `mode`. Returns the
 * descriptor, PS_E_SYSTEM. */
int ps_file_create(const char *path, int64_t length, int32_t mode);
/* Allocates the disk blocks of `length` bytes of a file, beginning at `offset`. With PS_E_NO_SPACE,
 * the error text states the number of bytes needed and the number available. */
int ps_file_reserve(int fd, const char *path, int64_t offset, int64_t length);
/* Writes zeroes over a range.  PS_E_SYSTEM. */
int ps_file_zero(int fd, const char *path, int64_t offset, int64_t length);
/* Releases the disk blocks of a range of a file, so that the range reads as zeroes. Writes zeroes
 * if the file system cannot release blocks. PS_E_SYSTEM. */
int ps_file_release(int fd, const char *path, int64_t offset, int64_t length);
/* Opens and maps the whole file, which must have at least `least` bytes. PS_E_SYSTEM, PS_E_CORRUPT.
 */
int ps_file_map(const char *path, int32_t read_only, int64_t least, uint8_t **map,
                uint64_t *length);
/* Opens the file, then allocates the blocks of a range like ps_file_reserve. */
int ps_file_reserve_in(const char *path, int64_t offset, int64_t length);
/* A range of a file: the bytes [from, to). */
typedef struct ps_file_range {
    int64_t from;
    int64_t to;
} ps_file_range_t;
/* Creates and maps a file, and allocates its disk blocks, except those of the ranges in `holes`
 * (ascending, not adjacent). If a step fails, removes the file. A hole takes no memory until
 * ps_file_reserve allocates its blocks. Do not access a hole before ps_file_reserve has allocated
 * its blocks: on a full file system, the access raises SIGBUS. */
int ps_file_make(const char *path, int64_t length, int32_t mode, const ps_file_range_t *holes,
                 int32_t hole_count, uint8_t **map);
void ps_file_unmap(uint8_t *map, uint64_t length);

#endif
