# What the multiply-adds of a kernel's loops read from the register file.
#
#   KERNEL=gemm_tma_128x256 SASS=1 tools/ptx.sh | awk -f tools/operands.awk
#
# For each stretch of code without a branch that has at least 64 multiply-adds: its
# instructions, its multiply-adds, and how many of those read three registers, or two of
# the same bank (even or odd). The others read one of each bank, which is what the file
# delivers in a cycle: the third operand was kept, as `.reuse` says, from the instruction
# before. Loads from memory in between leave it kept.

BEGIN {
    format = "%-8s %12s %13s %15s %14s\n"
    printf format, "from", "instructions", "multiply-adds", "three registers", "two of a bank"
}

function finish() {
    if (adds >= 64)
        printf format, first, instructions, adds, three + 0, clashes + 0
    first = ""
    instructions = adds = three = clashes = 0
    split("", kept)
}

match($0, /\/\*[0-9a-f]+\*\/ +/) {
    at = substr($0, RSTART + 2, RLENGTH)
    sub(/\*.*/, "", at)
    text = substr($0, RSTART + RLENGTH)
    sub(/ *;.*/, "", text)
    sub(/^@!?U?P[0-9T]+ +/, "", text)
    if (first == "")
        first = "0x" at
    instructions++
    count = split(text, words, /[ ,]+/)
    if (words[1] == "FFMA") {
        adds++
        reads = 0
        split("", banks)
        split("", seen)
        for (i = 3; i <= count; i++) {
            register = words[i]
            sub(/[.]reuse$/, "", register)
            if (register !~ /^R[0-9]+$/ || kept[i] == register || seen[register]++)
                continue
            reads++
            banks[substr(register, 2) % 2]++
        }
        if (reads == 3)
            three++
        else if (banks[0] == 2 || banks[1] == 2)
            clashes++
    }
    if (words[1] !~ /^LD/) {
        split("", kept)
        for (i = 3; i <= count; i++)
            if (words[i] ~ /[.]reuse$/) {
                register = words[i]
                sub(/[.]reuse$/, "", register)
                kept[i] = register
            }
    }
    if (words[1] ~ /^(BRA|EXIT|RET)/)
        finish()
}

END { finish() }
