"""The benchmark program: costs compared with other libraries and with the machine's limits."""
