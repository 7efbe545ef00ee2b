#!/usr/bin/env python3
"""Whether the C++ that a page shows is code that is built: shown.py PAGE FILE...

Each ```cpp block of PAGE must be consecutive lines of one FILE, apart from indentation and, in a
header's comment, the slashes. Exits with 1 and the block where one is not.
"""

import re
import sys


def lines(text):
    return [line for line in (re.sub(r"^\s*(//\s)?\s*", "", line).rstrip()
                              for line in text.splitlines()) if line]


def main():
    page, *files = sys.argv[1:]
    sources = ["\n".join(["", *lines(open(file).read()), ""]) for file in files]
    blocks = re.findall(r"^```cpp\n(.*?)^```$", open(page).read(), re.MULTILINE | re.DOTALL)
    missing = [block for block in blocks
               if not any("\n".join(["", *lines(block), ""]) in source for source in sources)]
    for block in missing:
        print(f"{page} shows what is in none of {', '.join(files)}:\n\n{block}")
    return 1 if missing or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())
