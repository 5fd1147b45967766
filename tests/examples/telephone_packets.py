#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Receives the RTP packets of a call and prints what they have in common, a line each: "name value …".

usage: telephone_packets.py PORT [SECONDS]     ends when no packet came for so long (1 s) after the first one, or with
                                               SIGTERM

steps of timestamps and sequence numbers, payload types and sizes are lists of all that occurred. A packet may be shorter at
the end, and before a gap where a busy machine made speech too late: such a packet's size and step are left out. `early` and `late` are by how many ms packets came before and after their time, by the median packet.
"""
import collections
import select
import signal
import socket
import statistics
import struct
import sys
import time

RATE = 8000


def receive(port, patience):
    """Arrival in seconds and bytes of each packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", port))
        # A signal writes into a pair of sockets, so that none falls between two packets.
        told, tells = socket.socketpair()
        tells.setblocking(False)
        signal.set_wakeup_fd(tells.fileno())
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        print("listening", flush=True)
        packets = []
        while True:
            ready, _, _ = select.select([receiver, told], [], [], patience if packets else None)
            if receiver not in ready:
                return packets
            packets.append((time.monotonic(), receiver.recv(65536)))


def main():
    packets = receive(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
    headers = [struct.unpack("!BBHII", data[:12]) for _, data in packets]
    sizes = [len(data) - 12 for _, data in packets]  # samples, too
    steps = [(after[3] - before[3]) % 2**32 for before, after in zip(headers, headers[1:])]
    whole = [(size, step) for size, step in zip(sizes, steps) if size == max(sizes) or step <= size]
    sequence = collections.Counter((after[2] - before[2]) % 2**16 for before, after in zip(headers, headers[1:]))
    offsets = [arrival - packets[0][0] - (header[3] - headers[0][3]) % 2**32 / RATE
               for (arrival, _), header in zip(packets, headers)]
    middle = statistics.median(offsets)
    print("packets", len(packets))
    print("versions", *sorted({header[0] >> 6 for header in headers}))
    print("types", *sorted({header[1] & 0x7F for header in headers}))
    print("markers", sum(header[1] >> 7 for header in headers))
    print("sources", len({header[4] for header in headers}))
    print("sizes", *sorted({size for size, _ in whole}))
    print("steps", *sorted({step for _, step in whole}))
    print("sequence", *sorted(sequence))
    print(f"early {1000 * (middle - min(offsets)):.2f}")
    print(f"late {1000 * (max(offsets) - middle):.2f}")


if __name__ == "__main__":
    main()
