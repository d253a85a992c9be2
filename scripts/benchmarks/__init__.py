"""The benchmark program: costs beside those of other libraries and the machine's limits."""
