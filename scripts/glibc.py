"""Says which version of the C library programs need, from the symbol versions in them; fails where that is newer than allowed.

    python3 scripts/glibc.py 2.28 target/x86_64-unknown-linux-gnu/dist/vramlab

Reads 64-bit little-endian ELF files, and those inside of wheels.
"""

import struct
import sys
import zipfile

MAGIC = b"\x7fELF\x02\x01"
NEEDED_VERSIONS = 0x6FFFFFFE  # SHT_GNU_verneed


def sections(elf):
    """Type, offset, size, linked section and entries of each section."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    for i in range(count):
        _, kind, _, _, offset, length, link, info = struct.unpack_from("<IIQQQQII", elf, table + i * size)
        yield kind, offset, length, link, info


def text(elf, offset):
    return elf[offset : elf.index(b"\0", offset)].decode()


def versions(elf):
    """Each library with each version of it that symbols are bound to."""
    found = []
    all_sections = list(sections(elf))
    for kind, offset, _, link, count in all_sections:
        if kind != NEEDED_VERSIONS:
            continue
        strings = all_sections[link][1]
        for _ in range(count):
            _, entries, library, first, following = struct.unpack_from("<HHIII", elf, offset)
            at = offset + first
            for _ in range(entries):
                _, _, _, name, next_entry = struct.unpack_from("<IHHII", elf, at)
                found.append((text(elf, strings + library), text(elf, strings + name)))
                at += next_entry
            offset += following
    return found


def number(version):
    return tuple(int(part) for part in version.split("."))


def contents(path):
    """The ELF files of a path: itself, or those in a wheel."""
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(MAGIC):
        return [(path, data)]
    with zipfile.ZipFile(path) as wheel:
        inside = [(f"{path}:{name}", wheel.read(name)) for name in wheel.namelist()]
    return [(name, data) for name, data in inside if data.startswith(MAGIC)]


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: glibc.py VERSION FILE...")
    allowed, failed = number(sys.argv[1]), False
    for name, elf in [one for path in sys.argv[2:] for one in contents(path)]:
        needed = versions(elf)
        glibc = [number(v.removeprefix("GLIBC_")) for _, v in needed if v.startswith("GLIBC_") and v[6:7].isdigit()]
        if not glibc:
            sys.exit(f"{name}: no symbol is bound to a version of glibc")
        newest = max(glibc)
        too_new = sorted({f"{library} {v}" for library, v in needed if v == "GLIBC_" + ".".join(map(str, newest))})
        print(f"{name}: glibc {'.'.join(map(str, newest))}; libraries: {', '.join(sorted({one for one, _ in needed}))}")
        if newest > allowed:
            failed = True
            print(f"  newer than {sys.argv[1]}: {', '.join(too_new)}")
    sys.exit(failed)


main()
