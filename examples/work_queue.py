# SPDX-License-Identifier: Apache-2.0
"""A queue of work: members of a consumer group share the messages and commit what is done.

    penstock up
    python examples/work_queue.py
"""

from __future__ import annotations

import threading

import penstock

CHANNEL, STREAM = "aeron:ipc", 60
ORDERS = 1000


def main() -> None:
    """Two workers share a thousand orders."""
    done: list[bytes] = []
    complete = threading.Event()

    with penstock.connect() as client:

        def work(group: penstock.ConsumerGroup) -> None:
            for batch in group.messages(limit=50):
                done.extend(batch)              # the work; after a crash it is done again
                batch.commit()
                if len(done) >= ORDERS:
                    complete.set()

        workers = [client.consumer_group("orders", CHANNEL, STREAM) for _ in range(2)]
        threads = [threading.Thread(target=work, args=(each,)) for each in workers]
        for thread in threads:
            thread.start()
        with client.add_publication(CHANNEL, STREAM) as publication:
            publication.send_batch([b"order %d" % n for n in range(ORDERS)], timeout_s=5.0)
            complete.wait(timeout=60.0)
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join()
        print("done:", len(set(done)), "orders")


if __name__ == "__main__":
    main()
