#!/usr/bin/env python3
"""Counts the PTX instructions in the innermost loops of each kernel, to compare what two compilers
made of one source: ptx_loops.py FILE.ptx...

A loop is a natural loop of the control flow graph: a branch back to a block that dominates it, and
every block between. A loop that a compiler unrolled whole is none any more; its body counts in the
loop around it. The number of fma tells how far a loop is unrolled.
"""

import re
import sys

KINDS = [
    ("fma", re.compile(r"fma\.")),
    ("ld.shared", re.compile(r"ld\.(volatile\.)?shared")),
    ("ld.global", re.compile(r"ld\.(volatile\.)?global")),
    ("st.shared", re.compile(r"st\.(volatile\.)?shared")),
    ("bar", re.compile(r"(bar|barrier)\.")),
]
ENTRY = re.compile(r"\.entry\s+([\w$]+)")
LABEL = re.compile(r"\s*([\w$]+):\s*$")
INSTRUCTION = re.compile(r"\s*(@!?%\w+\s+)?([a-z][\w.:]*)\s*([^;]*);")


class Block:
    """A run of instructions that is entered at its start alone."""

    def __init__(self):
        self.operations = []
        self.targets = []
        self.falls_through = True


def kernels(text):
    """Name and blocks of each kernel; the blocks with the label of each that has one."""
    name, depth, blocks, labels = None, 0, [], {}
    for line in text.splitlines():
        line = line.split("//")[0]
        entry = ENTRY.search(line)
        if entry:
            name, depth, blocks, labels = entry.group(1), 0, [Block()], {}
            continue
        if name is None:
            continue
        # Braces stand on lines of their own; others are an instruction's operands.
        if line.strip() in ("{", "}"):
            depth += 1 if line.strip() == "{" else -1
            if depth == 0:
                yield name, blocks, labels
                name = None
            continue
        label = LABEL.match(line)
        if label:
            blocks.append(Block())
            labels[label.group(1)] = len(blocks) - 1
            continue
        instruction = INSTRUCTION.match(line)
        if not instruction:
            continue
        predicate, operation, operands = instruction.groups()
        block = blocks[-1]
        block.operations.append(operation)
        if operation in ("bra", "bra.uni"):
            block.targets.append(operands.strip())
        if operation.split(".")[0] in ("bra", "ret", "exit", "trap"):
            block.falls_through = bool(predicate)
            blocks.append(Block())


def successors(blocks, labels):
    """The blocks that can follow each."""
    for i, block in enumerate(blocks):
        following = {labels[target] for target in block.targets if target in labels}
        if block.falls_through and i + 1 < len(blocks):
            following.add(i + 1)
        yield following


def innermost_loops(blocks, labels):
    """The sets of blocks of the loops that hold no other."""
    after = list(successors(blocks, labels))
    before = [{i for i in range(len(blocks)) if j in after[i]} for j in range(len(blocks))]
    reached, open_ = {0}, [0]
    while open_:
        for j in after[open_.pop()] - reached:
            reached.add(j)
            open_.append(j)
    dominators = {i: set(reached) for i in reached}
    dominators[0] = {0}
    changed = True
    while changed:
        changed = False
        for i in sorted(reached - {0}):
            new = {i} | set.intersection(*(dominators[j] for j in before[i] & reached))
            if new != dominators[i]:
                dominators[i] = new
                changed = True
    loops = {}
    for i in reached:
        for head in after[i] & dominators[i]:
            body, open_ = {head, i}, [i]
            while open_:
                for j in (before[open_.pop()] & reached) - body:
                    body.add(j)
                    open_.append(j)
            loops.setdefault(head, set()).update(body)
    bodies = list(loops.values())
    return [body for body in bodies if not any(other < body for other in bodies)]


def main(files):
    heading = ["file", "kernel", "all", *(kind for kind, _ in KINDS), "other"]
    rows = []
    for path in files:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            sys.exit(f"{path}: {error}")
        found = 0
        for name, blocks, labels in kernels(text):
            found += 1
            for body in innermost_loops(blocks, labels):
                operations = [op for i in body for op in blocks[i].operations]
                counts = [sum(bool(p.match(op)) for op in operations) for _, p in KINDS]
                other = len(operations) - sum(counts)
                short = "/".join(path.split("/")[-2:])
                rows.append([short, name, *map(str, [len(operations), *counts, other])])
        if not found:
            sys.exit(f"{path}: no kernel in it")
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    for row in [heading, *rows]:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:])]
        print("  ".join(left + right))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: ptx_loops.py FILE.ptx...")
    main(sys.argv[1:])
