# Reads what `ptxas -v` writes. Prints a line for each function, tab-separated:
# name, registers, static shared memory, stack frame, spill stores, spill loads.
# ptxas 13.5 gives a kernel's registers after its properties, and a device function no registers.
function flush() {
    if (name != "")
        printf "%s\t%s\t%d\t%d\t%d\t%d\n", name, registers, shared, stack, stores, loads
    name = ""
}
/Function properties for / {
    flush()
    name = $NF
    registers = "-"
    shared = stack = stores = loads = 0
}
/bytes stack frame/ {
    stack = $1
    for (i = 2; i <= NF; i++) {
        if ($i == "spill" && $(i + 1) ~ /^stores/) stores = $(i - 2)
        if ($i == "spill" && $(i + 1) ~ /^loads/) loads = $(i - 2)
    }
}
/Used [0-9]+ registers/ {
    for (i = 1; i <= NF; i++) {
        if ($i ~ /^registers/) registers = $(i - 1)
        if ($i ~ /^smem/) shared = $(i - 2)
    }
    flush()
}
END { flush() }
