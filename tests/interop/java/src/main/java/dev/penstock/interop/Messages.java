// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/**
 * The messages of a test, a function of (seed, size limits): for each one a splitmix64 word gives
 * the size, then words in little-endian order give the bytes.  messages.py makes the same.
 */
final class Messages {
    private final long low;
    private final long span;
    private long state;

    Messages(final long seed, final String sizes) {
        final String[] limits = sizes.split("-");
        low = Long.parseLong(limits[0]);
        span = Long.parseLong(limits[limits.length - 1]) - low + 1;
        state = seed;
    }

    private long next() {
        state += 0x9e3779b97f4a7c15L;
        long z = state;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    byte[] message() {
        final int size = (int) (low + Long.remainderUnsigned(next(), span));
        final ByteBuffer words = ByteBuffer.allocate((size + 7) & ~7).order(ByteOrder.LITTLE_ENDIAN);
        while (words.hasRemaining()) {
            words.putLong(next());
        }
        final byte[] bytes = new byte[size];
        words.get(0, bytes);
        return bytes;
    }

    /** SHA-256 over messages, each after its length as four little-endian bytes. */
    static final class Hash {
        private final MessageDigest digest;

        Hash() {
            try {
                digest = MessageDigest.getInstance("SHA-256");
            } catch (final NoSuchAlgorithmException e) {
                throw new IllegalStateException(e);
            }
        }

        void add(final byte[] message) {
            final ByteBuffer length = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
            digest.update(length.putInt(message.length).array());
            digest.update(message);
        }

        String hex() {
            return HexFormat.of().formatHex(digest.digest());
        }
    }
}
