# SPDX-License-Identifier: Apache-2.0
"""Keep Python's garbage collector away from the modules of a Spark worker.

Spark's worker collects all garbage after each task. The collection looks at every object of the
process, most of which belong to modules such as pandas, numpy and pyspark. It takes longer than a
small task.
"""

from __future__ import annotations

import functools
import gc


@functools.cache
def keep_modules() -> None:
    """Exclude the present objects of this process from later garbage collections. Call the function
    after a task, when all modules are loaded. Only the first call has an effect, so an object of a
    later task never stays because of this call."""
    gc.collect()
    gc.freeze()
