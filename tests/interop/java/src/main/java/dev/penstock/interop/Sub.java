// SPDX-License-Identifier: Apache-2.0
package dev.penstock.interop;

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.logbuffer.FragmentHandler;

/**
 * Receives a number of messages; reports "added", "image", "image-lost" and "done" with the hash of
 * what came, in the order it came; with {@code --mark} also "mark" after so many messages.  With
 * {@code --hold-at} it reports "held" after so many and takes no more until it reads a byte; with
 * {@code --until-end} it is done when its image has ended, however many messages came.
 *
 * <pre>--dir= --channel= --stream= --count= [--mark=N] [--hold-at=N] [--until-end=1]
 * [--destination=CHANNEL]... [--timeout-s=60]</pre>
 */
public final class Sub {
    private Sub() {
    }

    public static void main(final String[] arguments) throws Exception {
        final Args args = new Args(arguments);
        final Aeron.Context context = new Aeron.Context().aeronDirectoryName(args.text("dir"));
        final long deadline = System.nanoTime() + args.number("timeout-s", 60) * 1_000_000_000L;
        final long count = args.number("count", 0);
        final long mark = args.number("mark", -1);
        final long hold = args.number("hold-at", -1);
        final boolean untilEnd = args.number("until-end", 0) != 0;
        final Messages.Hash hash = new Messages.Hash();
        final long[] received = new long[2];
        final FragmentHandler handler = new FragmentAssembler((buffer, offset, length, header) -> {
            final byte[] message = new byte[length];
            buffer.getBytes(offset, message);
            hash.add(message);
            received[0]++;
            received[1] += length;
            if (received[0] == mark) {
                Report.event("mark", "count", mark);
            }
        });
        try (Aeron aeron = Aeron.connect(context);
            Subscription subscription = aeron.addSubscription(args.text("channel"),
                (int) args.number("stream", 1001), Sub::onImage, Sub::onImageLost)) {
            for (final String destination : args.all("destination")) {
                subscription.addDestination(destination);
            }
            Report.event("added", "registration", subscription.registrationId());
            boolean held = false;
            while (received[0] < count) {
                if (received[0] == hold && !held) {
                    held = true;
                    Report.event("held", "count", hold);
                    System.in.read();
                }
                // One fragment at a time: never past the last message that is asked for.
                if (subscription.poll(handler, 1) == 0) {
                    if (untilEnd && received[0] > 0 && hasEnded(subscription)) {
                        break;
                    }
                    if (System.nanoTime() > deadline) {
                        Report.event("timeout", "count", received[0]);
                        System.exit(3);
                    }
                    Thread.sleep(1);
                }
            }
            Report.event("done", "count", received[0], "bytes", received[1],
                "sha256", hash.hex());
        }
    }

    private static boolean hasEnded(final Subscription subscription) {
        return subscription.hasNoImages() || subscription.imageAtIndex(0).isEndOfStream();
    }

    private static void onImage(final Image image) {
        Report.event("image", "session", image.sessionId(), "source", image.sourceIdentity(),
            "position", image.joinPosition(), "mtu", image.mtuLength(),
            "term", image.termBufferLength());
    }

    private static void onImageLost(final Image image) {
        Report.event("image-lost", "session", image.sessionId(), "position", image.position());
    }
}
