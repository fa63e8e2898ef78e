"""DmRPC's figure 8 with Ray's object store, as `tollfree-lab figure dmrpc-fig8` does it with a pool.

One process puts blocks into the store, an actor (another process) copies each out, writes a part of it and puts the
result back, and the first one copies that out. Each times what it does itself; how references get from one to the
other is not timed. Arguments: bytes of a block, blocks in a batch, rounds, and percentages. Prints one JSON object a
round and percentage.
"""
import json
import sys
import time

import numpy
import ray

WARM_ROUNDS = 2


@ray.remote(num_cpus=1)
class Writer:
    def write(self, refs, length):
        kept = []
        began = time.perf_counter_ns()
        for ref in refs:
            block = numpy.array(ray.get(ref))
            block[:length] = 0xA5
            kept.append(ray.put(block))
        return time.perf_counter_ns() - began, kept


def main():
    size, count, rounds = (int(word) for word in sys.argv[1:4])
    percentages = [int(word) for word in sys.argv[4:]]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20)
    writer = Writer.remote()
    block = numpy.full(size, 0x5A, dtype=numpy.uint8)
    for round_idx in range(WARM_ROUNDS + rounds):
        for percent in percentages:
            length = size * percent // 100
            began = time.perf_counter_ns()
            refs = [ray.put(block) for _ in range(count)]
            shared = time.perf_counter_ns() - began
            # In a list, so that they arrive as references.
            written, results = ray.get(writer.write.remote(refs, length))
            began = time.perf_counter_ns()
            for ref in results:
                result = numpy.array(ray.get(ref))
                if result[0] != (0xA5 if length else 0x5A) or result[-1] != (0xA5 if length == size else 0x5A):
                    raise SystemExit("what came back is not what was written")
            taken = time.perf_counter_ns() - began
            if round_idx >= WARM_ROUNDS:
                took = (shared + written + taken) / count
                print(json.dumps({"percent": percent, "ns": took, "version": ray.__version__}), flush=True)


main()
