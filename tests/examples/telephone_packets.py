#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Receives the RTP packets of a call and prints what they have in common, a line each: "name value …".

usage: telephone_packets.py PORT [SECONDS]     ends when no packet came for so long (1 s), after the first one

steps of timestamps and sequence numbers, payload types and sizes are lists of all that occurred, without the last packet,
which may be shorter. `early` and `late` are by how many ms packets came before and after their time, by the median packet.
"""
import collections
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
        print("listening", flush=True)
        packets = []
        try:
            while True:
                data = receiver.recv(65536)
                packets.append((time.monotonic(), data))
                receiver.settimeout(patience)
        except TimeoutError:
            return packets


def main():
    packets = receive(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
    headers = [struct.unpack("!BBHII", data[:12]) for _, data in packets]
    steps = collections.Counter((after[3] - before[3]) % 2**32 for before, after in zip(headers, headers[1:]))
    sequence = collections.Counter((after[2] - before[2]) % 2**16 for before, after in zip(headers, headers[1:]))
    offsets = [arrival - packets[0][0] - (header[3] - headers[0][3]) % 2**32 / RATE
               for (arrival, _), header in zip(packets, headers)]
    middle = statistics.median(offsets)
    print("packets", len(packets))
    print("versions", *sorted({header[0] >> 6 for header in headers}))
    print("types", *sorted({header[1] & 0x7F for header in headers}))
    print("markers", sum(header[1] >> 7 for header in headers))
    print("sources", len({header[4] for header in headers}))
    print("sizes", *sorted({len(data) - 12 for _, data in packets[:-1]}))
    print("steps", *sorted(steps))
    print("sequence", *sorted(sequence))
    print(f"early {1000 * (middle - min(offsets)):.2f}")
    print(f"late {1000 * (max(offsets) - middle):.2f}")


if __name__ == "__main__":
    main()
