#!/usr/bin/env python3
"""Sums up the launches of a training's last steps, as `launches.c` wrote them down.

    python launches.py FILE [MOST]

A step is the shortest run of launches that the end of FILE repeats four times. Printed are the launches of a step, how long it takes, how long
the card computes of that, and the MOST (25) kernels that take the most time.
"""
import collections
import sys


def read(path):
    """Begin, end, name and grid of each launch, in the order of their begin."""
    launches = []
    with open(path) as file:
        for line in file:
            begin, end, grid, _threads, _registers, name = line.rstrip("\n").split("\t")
            launches.append((int(begin), int(end), name, grid))
    return sorted(launches)


def last_steps(launches, most=12):
    """The launches of the last steps, up to so many of them, and how many steps they are; all as one step if nothing repeats."""
    what, count = [launch[2:] for launch in launches], len(launches)
    for length in range(1, count // 4 + 1):

        def repeats(n, length=length):
            return what[count - (n + 1) * length : count - n * length] == what[count - length :]

        if all(repeats(n) for n in range(1, 4)):
            steps = 4
            while steps < most and (steps + 1) * length <= count and repeats(steps):
                steps += 1
            return launches[count - steps * length:], steps
    return launches, 1


def busy(launches):
    """Nanoseconds in which at least one launch computes."""
    total = until = 0
    for begin, end, *_ in launches:
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    launches, steps = last_steps(read(sys.argv[1]))
    if not launches:
        sys.exit(f"{sys.argv[1]}: no launches")
    wall = launches[-1][1] - launches[0][0]
    print(f"{len(launches) // steps} launches a step, {steps} steps: {wall / steps / 1e3:.1f} us a step, the card computes for {busy(launches) / steps / 1e3:.1f}")
    sums = collections.defaultdict(lambda: [0, 0])
    for begin, end, name, _ in launches:
        sums[name][0] += end - begin
        sums[name][1] += 1
    for name, (nanos, count) in sorted(sums.items(), key=lambda item: -item[1][0])[:int(sys.argv[2]) if len(sys.argv) > 2 else 25]:
        print(f"{nanos / steps / 1e3:9.1f} us {count / steps:6.1f}x  {name[:150]}")


main()
