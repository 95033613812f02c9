//! Real servers, real binaries, free ports, and waiting for conditions.
